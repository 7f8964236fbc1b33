"""Success against what was spent, as a mean over seeds: the noise of one measurement counts less than in one race."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float64

from cairn.bench.efficiency import Method, Row
from cairn.bench.race import Mark

Spent = Callable[[Mark], int]
"""Of a mark: environment steps, or samples."""

_POINTS = 401
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % points of Student's t with 1, 2, … degrees of freedom; the last one stands for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Train Avg@k at what was spent, the mean over seeds; P points, between which it is straight."""

    spent: Float64[np.ndarray, " P"]
    mean: Float64[np.ndarray, " P"]
    margin: Float64[np.ndarray, " P"]  # half of a 95 % interval over seeds (Student's t); 0 where there is one seed

    def reached(self, success: float) -> float | None:
        """What was spent when the mean first came to `success`; None where it never did."""
        there = np.flatnonzero(self.mean >= success - 1e-9)
        return float(self.spent[there[0]]) if there.size else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A mean over seeds, and half of its 95 % interval."""

    mean: float
    margin: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}" + (f" ± {100 * self.margin:.1f}" if self.margin else "")  # one seed has none


def score_of(values: Sequence[float]) -> Score:
    """Of one value for each seed."""
    found = np.array(values)[:, None]
    return Score(mean=float(found.mean()), margin=float(margins(found)[0]))


def races_of(rows: Sequence[Row], method: Method) -> list[list[Mark]]:
    """The marks of each seed, in the order of their measurement."""
    seeds = sorted({row.seed for row in rows if row.method is method})
    return [[row.mark for row in rows if row.method is method and row.seed == seed] for seed in seeds]


def curve(races: Sequence[Sequence[Mark]], spent: Spent) -> Curve:
    """Over all that any seed has spent; one that ended earlier stays where it was.

    Of marks that cost the same the last one counts.
    """
    lines = [_line(marks, spent) for marks in races]
    first, last = max(xs[0] for xs, _ in lines), max(xs[-1] for xs, _ in lines)
    grid = np.linspace(first, last, _POINTS if last > first else 1)
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in lines])
    return Curve(spent=grid, mean=values.mean(axis=0), margin=margins(values))


def margins(values: Float64[np.ndarray, "S P"]) -> Float64[np.ndarray, " P"]:
    """Half of the 95 % interval of the mean over S seeds."""
    seeds = len(values)
    if seeds < 2:
        return np.zeros_like(values[0])
    return values.std(axis=0, ddof=1) * (_T[min(seeds - 2, len(_T) - 1)] / sqrt(seeds))


def _line(marks: Sequence[Mark], spent: Spent) -> tuple[list[float], list[float]]:
    points = {float(spent(mark)): mark.train_avg for mark in marks}
    return list(points), list(points.values())
