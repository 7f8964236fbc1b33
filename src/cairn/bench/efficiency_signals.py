"""Methods that only answer, compared at equal samples; what chooses their states is the difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from cairn.bench.efficiency import ANSWERS, Row
from cairn.bench.efficiency_curves import Score, races_of, score_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One way to choose states, over the seeds."""

    method: str
    seeds: int
    samples: float  # of a whole race
    equal: Score  # train Avg@k once every race has had as many samples as the shortest
    best: Score  # the best mark of each race, which chooses the policy that is kept
    held: Score  # in the end


def selected(rows: Sequence[Row]) -> tuple[int, tuple[Selected, ...]]:
    """The samples that every race has had, and each method then; nothing where fewer than two methods only answer."""
    methods = [method for method in dict.fromkeys(row.method for row in rows) if method in ANSWERS]
    if len(methods) < 2:
        return 0, ()
    races = {method: races_of(rows, method) for method in methods}
    samples = min(marks[-1].samples for found in races.values() for marks in found)
    compared: list[Selected] = []
    for method, found in races.items():
        lines = [([mark.samples for mark in marks], [mark.train_avg for mark in marks]) for marks in found]
        compared.append(
            Selected(
                method=method,
                seeds=len(found),
                samples=float(np.mean([marks[-1].samples for marks in found])),
                equal=score_of([float(np.interp(samples, xs, ys)) for xs, ys in lines]),
                best=score_of([max(ys) for _, ys in lines]),
                held=score_of([marks[-1].held_avg or 0.0 for marks in found]),
            )
        )
    return samples, tuple(compared)


def signals_table(samples: int, found: Sequence[Selected], *, title: str) -> Table:
    """One line for each method."""
    columns = ("method", "seeds", f"train Avg@4 at {samples} samples", "best mark", "held-out in the end", "samples")
    table = Table(*columns, title=f"{title}: single answers", title_justify="left")
    for one in found:
        scores = (str(one.equal), str(one.best), str(one.held))
        table.add_row(one.method, str(one.seeds), *scores, f"{one.samples:.0f}")
    return table
