"""Runs as pictures, from their progress and their event logs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from cairn.dashboard.adaptive import Slice, TaskRow, draw_adaptive
from cairn.dashboard.curve import EvaluationPoint, TrainingPoint, draw_curve
from cairn.dashboard.seeds import SeedCurve, draw_seeds
from cairn.data.ledger import environment_steps
from cairn.data.task import FromSnapshot, Purpose, Recorded, Root, Split
from cairn.loop.progress import Phase, Progress
from cairn.store.run import Run, open_run

CURVE = "curve.png"
"""The learning curve's file in a run's directory."""

STARTS = "starts.png"
"""The file that shows where adaptive rollouts started."""

_SLICES = 40

_PHASES = {Phase.IMITATE: "imitation", Phase.REINFORCE: "reinforcement", Phase.CONTROL: "control"}


def draw(folder: Path, progress: Progress, *, title: str) -> Path:
    """Draw the learning curve of a run; the path of the PNG, which lies in its directory."""
    path = folder / CURVE
    draw_curve(_evaluations(progress), _rounds(open_run(folder)), path, title=title)
    return path


def draw_starts(folder: Path, scheduler: Mapping[str, object], *, title: str) -> Path | None:
    """Draw where an adaptive run's rollouts started; the path of the PNG, None where the run was of another kind.

    `scheduler` is its state.
    """
    if "scores" not in scheduler or "tasks" not in scheduler:
        return None
    path = folder / STARTS
    draw_adaptive(_slices(open_run(folder)), _tasks(scheduler), path, title=title)
    return path


def draw_together(runs: Sequence[tuple[Path, Progress]], path: Path, *, title: str) -> None:
    """Draw the curves of several seeds of one recipe, with their mean, to a PNG at `path`."""
    curves = [
        SeedCurve(evaluations=_evaluations(progress), rounds=_rounds(open_run(folder))) for folder, progress in runs
    ]
    draw_seeds(curves, path, title=title)


def _evaluations(progress: Progress) -> list[EvaluationPoint]:
    return [
        EvaluationPoint(phase=_PHASES[m.phase], minutes=m.minutes, greedy=m.greedy, mean=m.mean, low=m.low, high=m.high)
        for m in progress.measured
        if m.split == Split.HELD_OUT and m.phase in _PHASES
    ]


def _slices(run: Run) -> list[Slice]:
    """The groups that were learned from, in as many stretches as a picture can show."""
    groups = [group for group in run if group.plan.purpose is not Purpose.EVALUATE]
    groups = [group for group in groups if group.plan.purpose is not Purpose.DEMONSTRATE]
    size = max(1, -(-len(groups) // _SLICES))
    found: list[Slice] = []
    steps = 0
    for first in range(0, len(groups), size):
        part = groups[first : first + size]
        steps += sum(environment_steps(group) for group in part)
        kinds = Counter(type(group.plan.start) for group in part if group.plan.purpose.trained)
        found.append(Slice(steps=steps, local=kinds[Recorded], suffix=kinds[FromSnapshot], root=kinds[Root]))
    return found


def _tasks(scheduler: Mapping[str, object]) -> list[TaskRow]:
    tasks = cast("Mapping[str, Mapping[str, object]]", scheduler["tasks"])
    scores = cast("Sequence[Sequence[float | None]]", scheduler["scores"])
    return [
        TaskRow(
            mode=str(task["mode"] or ""),
            frontier=cast("int | None", task.get("at")),
            scores=tuple(score for score in own if score is not None),
        )
        for task, own in zip(tasks.values(), scores, strict=True)
    ]


def _rounds(run: Run) -> list[TrainingPoint]:
    """Each round of rollouts, at the time of the update that it led to."""
    found: list[TrainingPoint] = []
    success: float | None = None
    for logged in run.events():
        fields = logged.event.fields
        if logged.event.kind == "round":
            success = _number(fields["success"])
        elif logged.event.kind == "update" and success is not None:
            found.append(TrainingPoint(minutes=_number(fields["minutes"]), success=success))
            success = None
    return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
