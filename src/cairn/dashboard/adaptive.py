"""Adaptive training as a picture: how long its rollouts are, how far each task has come, where the policy hesitates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"local": "#b45309", "suffix": "#0369a1", "root": "#0f766e"}
_UNKNOWN = "#d1d5db"
_MOST_TASKS = 60  # more do not fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Groups of one stretch of the run, by the length of their rollouts."""

    steps: int  # environment steps of learning so far
    local: int
    suffix: int
    root: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task: what is known of the states on its expert's way, and where its rollouts start."""

    mode: str  # "local", "suffix" or "root"; empty where it was not estimated yet
    frontier: int | None  # the state that suffixes start from
    scores: tuple[float, ...]  # of each state on the way, from the root on


def draw_adaptive(slices: Sequence[Slice], tasks: Sequence[TaskRow], path: Path, *, title: str) -> None:
    """Write a PNG with three panels: shares of the modes over time, a map of the frontiers, and all scores."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.0), dpi=150, layout="constrained")
    shares, frontiers, scores = figure.subplots(1, 3)
    _draw_shares(shares, slices)
    _draw_frontiers(frontiers, tasks[:_MOST_TASKS])
    scores.hist([score for task in tasks for score in task.scores], bins=20, range=(0.0, 1.0), color=COLOURS["suffix"])
    scores.set_title("disagreement at the states on experts' ways", fontsize=9)
    scores.set_xlabel("score")
    scores.set_ylabel("states")
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_shares(axes: "Axes", slices: Sequence[Slice]) -> None:
    """A bar for each stretch, as wide as it has groups: single answers take groups, and no steps."""
    lengths = [one.local + one.suffix + one.root for one in slices]
    lefts = [sum(lengths[:i]) for i in range(len(slices))]
    below = [0.0] * len(slices)
    for mode, colour in COLOURS.items():
        heights = [100 * getattr(one, mode) / max(1, length) for one, length in zip(slices, lengths, strict=True)]
        axes.bar(lefts, heights, lengths, below, align="edge", color=colour, label=mode, alpha=0.85)
        below = [under + height for under, height in zip(below, heights, strict=True)]
    if slices:
        axes.legend(fontsize=7, loc="lower left")
        axes.set_xlabel(f"groups (in {slices[-1].steps} environment steps of learning)")
    axes.set_title("groups by the length of their rollouts", fontsize=9)
    axes.set_ylabel("%")
    axes.set_ylim(0, 100)


def _draw_frontiers(axes: "Axes", tasks: Sequence[TaskRow]) -> None:
    """A line for each task: its way, and the part of it that rollouts go through."""
    from matplotlib.ticker import MaxNLocator

    for row, task in enumerate(tasks):
        length = max(1, len(task.scores))
        start = task.frontier if task.frontier is not None else 0
        axes.barh(row, length, color=_UNKNOWN, height=0.8)
        if task.mode == "local":
            axes.barh(row, length, color=COLOURS["local"], height=0.25)
        elif task.mode:
            axes.barh(row, length - start, left=start, color=COLOURS[task.mode], height=0.8)
    axes.set_title("where rollouts start", fontsize=9)
    axes.set_xlabel("step of the expert")
    axes.set_ylabel("task")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.invert_yaxis()
