"""The comparison of methods: what each spent until it was as good as vanilla in the end."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from cairn.bench.efficiency import Method, Row
from cairn.bench.race import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One method, over the seeds. Shares are of what vanilla spent on its whole race, at the same seed."""

    method: Method
    seeds: int
    train_avg: float  # in the end
    train_pass: float
    held_avg: float
    held_pass: float
    reached: int  # seeds that came to vanilla's final train Avg@k
    steps_vs_vanilla: float | None  # until then; None where no seed came there
    samples_vs_vanilla: float | None
    held_delta: float  # against vanilla's, in the end


def standings(rows: Sequence[Row]) -> tuple[Standing, ...]:
    """Every method that was run, in the order of their first rows."""
    methods = list(dict.fromkeys(row.method for row in rows))
    return tuple(_standing(method, rows) for method in methods)


def _standing(method: Method, rows: Sequence[Row]) -> Standing:
    seeds = sorted({row.seed for row in rows if row.method is method})
    races = {seed: _marks(rows, method, seed) for seed in seeds}
    vanilla = {seed: _marks(rows, Method.VANILLA, seed) for seed in seeds}
    steps: list[float] = []
    samples: list[float] = []
    for seed in seeds:
        if not vanilla[seed]:
            continue
        last = vanilla[seed][-1]
        first = next((mark for mark in races[seed] if mark.train_avg >= last.train_avg), None)
        if first is not None:
            steps.append(first.steps / max(1, last.steps))
            samples.append(first.samples / max(1, last.samples))
    ends = [races[seed][-1] for seed in seeds]
    others = [vanilla[seed][-1] for seed in seeds if vanilla[seed]]
    held = _mean(ends, lambda mark: mark.held_avg or 0.0)
    return Standing(
        method=method,
        seeds=len(seeds),
        train_avg=_mean(ends, lambda mark: mark.train_avg),
        train_pass=_mean(ends, lambda mark: mark.train_pass),
        held_avg=held,
        held_pass=_mean(ends, lambda mark: mark.held_pass or 0.0),
        reached=len(steps),
        steps_vs_vanilla=statistics.fmean(steps) if steps else None,
        samples_vs_vanilla=statistics.fmean(samples) if samples else None,
        held_delta=held - _mean(others, lambda mark: mark.held_avg or 0.0) if others else 0.0,
    )


def _marks(rows: Sequence[Row], method: Method, seed: int) -> list[Mark]:
    return [row.mark for row in rows if row.method is method and row.seed == seed]


def _mean(marks: Sequence[Mark], of: Callable[[Mark], float]) -> float:
    return statistics.fmean(of(mark) for mark in marks)


def efficiency_table(found: Sequence[Standing], *, title: str) -> Table:
    """One line for each method."""
    ends = ("train Avg@4", "Pass@4", "held-out Avg@4", "Pass@4")
    spent = ("as good as vanilla", "steps", "samples")
    table = Table("method", "seeds", *ends, *spent, title=title, title_justify="left")
    for one in found:
        table.add_row(
            one.method,
            str(one.seeds),
            f"{one.train_avg:.3f}",
            f"{one.train_pass:.3f}",
            f"{one.held_avg:.3f}",
            f"{one.held_pass:.3f}",
            f"{one.reached} of {one.seeds}",
            _share(one.steps_vs_vanilla),
            _share(one.samples_vs_vanilla),
        )
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def efficiency_json(suites: Sequence[tuple[str, Sequence[Standing]]]) -> str:
    """What `stage1+hybrid` spends on the first suite, as a share of vanilla, and on the others by their names."""
    told: dict[str, float | None] = {}
    for number, (name, found) in enumerate(suites):
        best = next((one for one in found if one.method is Method.BOTH), None)
        prefix = "" if number == 0 else f"{name.rpartition('-')[2]}_"
        told[f"{prefix}steps_vs_vanilla"] = best.steps_vs_vanilla if best else None
        told[f"{prefix}samples_vs_vanilla"] = best.samples_vs_vanilla if best else None
        told[f"{prefix}heldout_delta"] = best.held_delta if best else None
    return json.dumps(told)
