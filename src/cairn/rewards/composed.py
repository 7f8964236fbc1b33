"""A reward of several terms: weighted, gated by each other, some of them over all siblings of a group."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cairn.data.task import Purpose, Recorded
from cairn.data.trajectory import ScoredTrajectory, Term, Trajectory
from cairn.ports import Verdict
from cairn.rewards.grouped import GroupMeasure
from cairn.rewards.terms import Case, Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Which earlier terms must be fulfilled (have a value of 1), and which must not be; else a term is worth nothing.

    A term that has nothing to say of a trajectory shuts no gate.
    """

    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    def open(self, values: Mapping[str, float]) -> bool:
        return all(values.get(name, 1.0) >= 1.0 for name in self.needs) and not any(
            values.get(name, 0.0) >= 1.0 for name in self.unless
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A term in its place."""

    name: str
    weight: float
    measure: Measure
    gate: Gate = Gate()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """A term that needs all siblings, in its place: after those of each of them."""

    name: str
    weight: float
    measure: GroupMeasure
    gate: Gate = Gate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Implements `Composition`.

    It judges trajectories of the kinds that it is `at_recorded` states, or `in_sessions`, made for, and never
    demonstrations. What is solved is decided by the terms named in `correct`, which must all have a value of 1; where
    there are none, or one of them has nothing to say, by the run's own judge.
    """

    parts: Sequence[Part]
    group_parts: Sequence[GroupPart] = ()
    correct: Sequence[str] = ()
    at_recorded: bool = True
    in_sessions: bool = True

    async def verdict(self, trajectory: Trajectory, *, solved: bool) -> Verdict | None:
        recorded = isinstance(trajectory.plan.start, Recorded)
        wanted = self.at_recorded if recorded else self.in_sessions
        if not wanted or trajectory.plan.purpose is Purpose.DEMONSTRATE:
            return None
        case, values, terms = Case(trajectory=trajectory, solved=solved), dict[str, float](), list[Term]()
        for part in self.parts:
            value = await part.measure.value(case) if part.gate.open(values) else 0.0
            if value is not None:
                values[part.name] = value
                terms.append(Term(name=part.name, weight=part.weight, value=value))
        if not terms:
            return None
        if self.correct and all(name in values for name in self.correct):
            solved = all(values[name] >= 1.0 for name in self.correct)
        return Verdict(solved=solved, terms=tuple(terms))

    def together(self, members: Sequence[ScoredTrajectory]) -> tuple[ScoredTrajectory, ...]:
        if not members or not all(member.terms for member in members):
            return tuple(members)
        for part in self.group_parts:
            values = part.measure.values(members)
            if values is not None:
                members = [_with(member, part, value) for member, value in zip(members, values, strict=True)]
        return tuple(members)


def _with(member: ScoredTrajectory, part: GroupPart, value: float) -> ScoredTrajectory:
    known = {term.name: term.value for term in member.terms}
    term = Term(name=part.name, weight=part.weight, value=value if part.gate.open(known) else 0.0)
    terms = (*member.terms, term)
    return replace(member, terms=terms, reward=math.fsum(one.worth for one in terms))
