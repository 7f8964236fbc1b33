"""The comparison of methods: what each spent until it was as good as vanilla in the end."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from cairn.bench.efficiency import Method, Row
from cairn.bench.efficiency_curves import Curve, Score, Spent, curve, races_of, score_of
from cairn.bench.race import Mark
from cairn.dashboard.efficiency import Band, draw_efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One method, over the seeds. Shares are of what vanilla spent until its mean was what it is in the end."""

    method: Method
    seeds: int
    steps: float  # of a whole race
    samples: float
    train_avg: Score  # in the end
    train_pass: Score
    held_avg: Score
    held_pass: Score
    reached: int  # seeds that came to vanilla's final train Avg@k of the same seed
    steps_vs_vanilla: float | None  # until the mean over seeds came to vanilla's final mean; None where it never did
    samples_vs_vanilla: float | None
    held_delta: float  # against vanilla's, in the end


def standings(rows: Sequence[Row]) -> tuple[Standing, ...]:
    """Every method that was run, in the order of their first rows."""
    methods = list(dict.fromkeys(row.method for row in rows))
    return tuple(_standing(method, rows) for method in methods)


def steps_spent(mark: Mark) -> int:
    """Environment steps."""
    return mark.steps


def samples_spent(mark: Mark) -> int:
    """Answers that entered updates."""
    return mark.samples


def _standing(method: Method, rows: Sequence[Row]) -> Standing:
    races, vanilla = races_of(rows, method), races_of(rows, Method.VANILLA)
    ends, others = [marks[-1] for marks in races], [marks[-1] for marks in vanilla]
    held = _score(ends, lambda mark: mark.held_avg or 0.0)
    return Standing(
        method=method,
        seeds=len(races),
        steps=statistics.fmean(mark.steps for mark in ends),
        samples=statistics.fmean(mark.samples for mark in ends),
        train_avg=_score(ends, lambda mark: mark.train_avg),
        train_pass=_score(ends, lambda mark: mark.train_pass),
        held_avg=held,
        held_pass=_score(ends, lambda mark: mark.held_pass or 0.0),
        reached=sum(
            any(mark.train_avg >= last.train_avg for mark in marks) for marks, last in zip(races, others, strict=False)
        ),
        steps_vs_vanilla=_share_of(races, vanilla, steps_spent),
        samples_vs_vanilla=_share_of(races, vanilla, samples_spent),
        held_delta=held.mean - _score(others, lambda mark: mark.held_avg or 0.0).mean if others else 0.0,
    )


def _share_of(races: Sequence[Sequence[Mark]], vanilla: Sequence[Sequence[Mark]], spent: Spent) -> float | None:
    if not vanilla:
        return None
    success = statistics.fmean(marks[-1].train_avg for marks in vanilla)
    reached, there = curve(races, spent).reached(success), curve(vanilla, spent).reached(success)
    return None if reached is None else reached / max(1.0, there or 0.0)


def _score(marks: Sequence[Mark], of: Callable[[Mark], float]) -> Score:
    return score_of([of(mark) for mark in marks])


def efficiency_table(found: Sequence[Standing], *, title: str) -> Table:
    """One line for each method."""
    ends = ("train Avg@4", "Pass@4", "held-out Avg@4", "Pass@4")
    spent = ("as good as vanilla", "of its steps", "of its samples")
    table = Table("method", "seeds", "steps", "samples", *ends, *spent, title=title, title_justify="left")
    for one in found:
        table.add_row(
            one.method,
            str(one.seeds),
            f"{one.steps:.0f}",
            f"{one.samples:.0f}",
            *(str(score) for score in (one.train_avg, one.train_pass, one.held_avg, one.held_pass)),
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
    return json.dumps({key: value if value is None else round(value, 4) for key, value in told.items()})


def draw_methods(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """The curves of all methods, with bands of 95 % over seeds, to a PNG at `path`."""
    methods = list(dict.fromkeys(row.method for row in rows))
    steps, samples = (
        [_band(method, curve(races_of(rows, method), spent)) for method in methods]
        for spent in (steps_spent, samples_spent)
    )
    draw_efficiency(steps, samples, path, title=title)


def _band(method: Method, found: Curve) -> Band:
    return Band(
        name=method,
        spent=[float(x) for x in found.spent],
        mean=[100 * float(y) for y in found.mean],
        margin=[100 * float(y) for y in found.margin],
    )
