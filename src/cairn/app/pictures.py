"""Runs as pictures, from their progress and their event logs."""

from collections.abc import Sequence
from pathlib import Path

from cairn.dashboard.curve import EvaluationPoint, TrainingPoint, draw_curve
from cairn.dashboard.seeds import SeedCurve, draw_seeds
from cairn.data.task import Split
from cairn.loop.progress import Phase, Progress
from cairn.store.run import Run, open_run

CURVE = "curve.png"
"""The learning curve's file in a run's directory."""

_PHASES = {Phase.IMITATE: "imitation", Phase.REINFORCE: "reinforcement", Phase.CONTROL: "control"}


def draw(folder: Path, progress: Progress, *, title: str) -> Path:
    """Draw the learning curve of a run; the path of the PNG, which lies in its directory."""
    path = folder / CURVE
    draw_curve(_evaluations(progress), _rounds(open_run(folder)), path, title=title)
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
