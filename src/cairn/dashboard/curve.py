"""The learning curve of a run, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPoint:
    """One evaluation on held-out tasks."""

    phase: str  # "imitation", "reinforcement", "control"
    minutes: float  # of learning, since the run began
    greedy: bool
    mean: float  # success in [0, 1]
    low: float
    high: float  # 95 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPoint:
    """The success rate of one round of training rollouts."""

    minutes: float
    success: float


COLOURS = {"imitation": "#6b7280", "reinforcement": "#0f766e", "control": "#b45309"}
NAMES = {
    "imitation": "behaviour cloning",
    "reinforcement": "reinforcement learning",
    "control": "more behaviour cloning",
}


def draw_curve(
    evaluations: Sequence[EvaluationPoint], rounds: Sequence[TrainingPoint], path: Path, *, title: str
) -> None:
    """Write a PNG: held-out success (sampled: solid, greedy: dashed, with 95 % bars) over minutes of learning."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    if rounds:
        axes.plot(
            [p.minutes for p in rounds],
            [100 * p.success for p in rounds],
            color=COLOURS["reinforcement"],
            alpha=0.25,
            linewidth=0.8,
            label="training rollouts",
        )
    for phase in COLOURS:
        for greedy in (False, True):
            points = line_of(evaluations, phase, greedy=greedy)
            if not points:
                continue
            axes.errorbar(
                [p.minutes for p in points],
                [100 * p.mean for p in points],
                yerr=[[100 * (p.mean - p.low) for p in points], [100 * (p.high - p.mean) for p in points]],
                color=COLOURS[phase],
                linestyle="--" if greedy else "-",
                marker="o" if not greedy else "s",
                markersize=4,
                capsize=3,
                label=f"{NAMES[phase]}, {'greedy' if greedy else 'sampled'}",
            )
    axes.set_xlabel("minutes of learning")
    axes.set_ylabel("success, %")
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.set_title(title, fontsize=10)
    if axes.has_data():
        axes.legend(fontsize=7, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def line_of(evaluations: Sequence[EvaluationPoint], phase: str, *, greedy: bool) -> list[EvaluationPoint]:
    """The points of one line; the later phases set out from the end of imitation."""
    own = sorted((p for p in evaluations if p.phase == phase and p.greedy == greedy), key=lambda p: p.minutes)
    if not own or phase == "imitation":
        return own
    before = [p for p in evaluations if p.phase == "imitation" and p.greedy == greedy]
    return [*sorted(before, key=lambda p: p.minutes)[-1:], *own]
