"""Terms that look at all siblings of a group: what is short or long is seen beside the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cairn.data.task import Recorded
from cairn.data.trajectory import Outcome, ScoredTrajectory
from cairn.rewards import shaping
from cairn.rewards.terms import sampled


class GroupMeasure(Protocol):
    """One term over a whole group."""

    def values(self, members: Sequence[ScoredTrajectory]) -> Sequence[float] | None:
        """One for each member; None where it has nothing to say of such trajectories."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBudget:
    """DAST's reward of the answers' lengths (UI-R1-E, arXiv:2503.21620).

    `limit` None: the budget reaches up to the longest answer of the group (the code); else to that limit of
    generation, as the paper may be read.
    """

    limit: int | None = None

    def values(self, members: Sequence[ScoredTrajectory]) -> Sequence[float] | None:
        lengths = [max(1, sampled(member.trajectory)) for member in members]
        return shaping.length_budget(lengths, [_right(member) for member in members], longest=self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestPath:
    """A success is worth 1 less `alpha` x the share of its turns beyond the group's shortest success (MobileRL)."""

    alpha: float

    def values(self, members: Sequence[ScoredTrajectory]) -> Sequence[float] | None:
        if any(isinstance(member.trajectory.plan.start, Recorded) for member in members):
            return None
        turns = [len(member.trajectory.turns) for member in members]
        won = [_right(member) for member in members]
        shortest = min((n for n, right in zip(turns, won, strict=True) if right), default=0)
        return [
            shaping.shortest_path(float(right), turns=n, shortest=shortest, weight=self.alpha)
            for n, right in zip(turns, won, strict=True)
        ]


def _right(member: ScoredTrajectory) -> bool:
    return member.outcome is Outcome.SUCCESS
