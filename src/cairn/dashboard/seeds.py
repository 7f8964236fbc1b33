"""Learning curves of several seeds of one recipe, and their mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from cairn.dashboard.curve import COLOURS, NAMES, EvaluationPoint, TrainingPoint, line_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedCurve:
    """What `draw_curve` draws, of one seed."""

    evaluations: Sequence[EvaluationPoint]
    rounds: Sequence[TrainingPoint]


def draw_seeds(seeds: Sequence[SeedCurve], path: Path, *, title: str) -> None:
    """Write a PNG: sampled success on the left, greedy on the right; thin lines are seeds, thick ones their mean.

    The wavering ones are training rollouts, averaged over eight rounds.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.2), dpi=150, layout="constrained")
    sampled, greedy = figure.subplots(1, 2, sharey=True)
    for seed in seeds:
        sampled.plot(
            [p.minutes for p in seed.rounds],
            _smooth([100 * p.success for p in seed.rounds]),
            color=COLOURS["reinforcement"],
            alpha=0.3,
            linewidth=0.8,
        )
    for axes, is_greedy, name in ((sampled, False, "sampled (T = 1)"), (greedy, True, "greedy")):
        for phase in COLOURS:
            _draw_phase(axes, [line_of(seed.evaluations, phase, greedy=is_greedy) for seed in seeds], phase)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("minutes of learning")
        axes.set_ylim(0, 100)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    sampled.set_ylabel("held-out success, %")
    if greedy.has_data():
        greedy.legend(fontsize=7, loc="lower right")
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _smooth(values: Sequence[float]) -> list[float]:
    """Means over up to `_ROUNDS` rounds: one round is a few dozen episodes of whatever the scheduler chose."""
    return [fmean(values[max(0, end - _ROUNDS) : end]) for end in range(1, len(values) + 1)]


def _draw_phase(axes: "Axes", lines: Sequence[Sequence[EvaluationPoint]], phase: str) -> None:
    """One thin line for each seed that has any points; the mean where all have as many."""
    lines = [line for line in lines if line]
    for line in lines:
        axes.plot(
            [p.minutes for p in line],
            [100 * p.mean for p in line],
            color=COLOURS[phase],
            alpha=0.35,
            linewidth=0.9,
            marker="o",
            markersize=2.5,
        )
    if lines and len({len(line) for line in lines}) == 1:
        points = list(zip(*lines, strict=True))
        axes.plot(
            [fmean(p.minutes for p in at) for at in points],
            [100 * fmean(p.mean for p in at) for at in points],
            color=COLOURS[phase],
            linewidth=2.2,
            marker="s",
            markersize=5,
            label=f"{NAMES[phase]}, mean of {len(lines)}",
        )
