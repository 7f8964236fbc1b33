"""The events that the loop emits: what the event log, TensorBoard and the progress bar are made of."""

from collections.abc import Sequence
from dataclasses import asdict

from cairn.data.task import RolloutPlan
from cairn.data.trajectory import Outcome, ScoredGroup, ScoredTrajectory
from cairn.loop.progress import Measured, Phase
from cairn.ports import Event, LearnerStep


def phase(name: Phase, *, detail: str) -> Event:
    """A phase of the run begins."""
    return Event(kind="phase", fields={"name": name, "detail": detail})


def update(phase: Phase, *, number: int, minutes: float, share: float, step: LearnerStep) -> Event:
    """One optimiser update is done; `minutes` of learning so far, `share` of the phase's budget."""
    return Event(
        kind="update",
        fields={"phase": phase, "number": number, "minutes": minutes, "share": share, **asdict(step)},
    )


def round_done(number: int, groups: Sequence[ScoredGroup], *, seconds: float, informative: int) -> Event:
    """One round of rollouts is in."""
    members = [m for g in groups for m in g.members]
    turns = sum(len(m.trajectory.turns) for m in members)
    return Event(
        kind="round",
        fields={
            "number": number,
            "groups": len(groups),
            "informative_groups": informative,
            "trajectories": len(members),
            "lost": sum(len(g.lost) for g in groups),
            "success": _mean([m.outcome is Outcome.SUCCESS for m in members]),
            "format_errors": _mean([m.outcome is Outcome.FORMAT_ERROR for m in members]),
            "turns": turns,
            "turns_per_second": turns / seconds if seconds else 0.0,
            "seconds": seconds,
            **_terms(members),
        },
    )


def _terms(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    """The mean of each term of a composed reward, unweighted, over the trajectories that it was measured on."""
    found: dict[str, list[float]] = {}
    for member in members:
        for term in member.terms:
            found.setdefault(f"term_{term.name}", []).append(term.value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def lost(plan: RolloutPlan, *, attempt: int, error: str) -> Event:
    """A demonstration was lost to a failure outside."""
    fields = {"group": plan.group_id, "task": plan.task.id, "sibling": 0, "attempt": attempt, "error": error}
    return Event(kind="infrastructure_error", fields=fields)


def evaluation(measured: Measured) -> Event:
    """One evaluation is done."""
    return Event(
        kind="evaluation",
        fields={
            "phase": measured.phase,
            "minutes": measured.minutes,
            "split": measured.split,
            "greedy": measured.greedy,
            "episodes": measured.episodes,
            "lost": measured.lost,
            "mean": measured.mean,
            "low": measured.low,
            "high": measured.high,
            "reward": measured.reward,
            "final": measured.final,
        },
    )


def notice(text: str) -> Event:
    """Something that a person should read."""
    return Event(kind="notice", fields={"text": text})


def _mean(flags: list[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0
