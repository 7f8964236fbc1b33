"""The terms that a composed reward is made of, each with its source: what one finished trajectory is worth in its eyes.

A term has a value of 1 where everything it looks at is right, unless it says otherwise. It has nothing to say (None) of
trajectories of another kind: one that looks for the expert's action is for answers at recorded states, and one that
looks at what was reached is for live sessions.
"""

import json
from dataclasses import dataclass
from typing import Protocol, cast

from cairn.data.action import Answer, Finish, FinishStatus, Invalid
from cairn.data.answer import AnswerShape
from cairn.data.task import Recorded
from cairn.data.trajectory import Ending, Trajectory, Turn
from cairn.errors import VerifierError
from cairn.ports import ReadableCodec
from cairn.rewards import shaping
from cairn.rewards.grounding import box_reward, overlap, word_overlap
from cairn.rewards.recorded import (
    HitRule,
    WordRule,
    answered_box,
    boxes,
    in_place,
    same_kind,
    same_parameters,
    text_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trajectory to be judged, and whether it is solved in the eyes of the run's own judge."""

    trajectory: Trajectory
    solved: bool

    @property
    def recorded(self) -> Recorded | None:
        """The recorded state that was answered at; None in a live session."""
        start = self.trajectory.plan.start
        return start if isinstance(start, Recorded) else None

    @property
    def answer(self) -> Turn | None:
        """The first answer; None where there was none, or where it was cut off."""
        turns = self.trajectory.turns
        return turns[0] if turns else None


class Measure(Protocol):
    """One term. A judge that fails is a `VerifierError`."""

    async def value(self, case: Case) -> float | None:
        """None where it has nothing to say of such a trajectory."""
        ...


# ── form ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class WellFormed:
    """Which answers have the form that was asked for. `codec` None: every answer that holds an action has it."""

    codec: ReadableCodec | None
    shape: AnswerShape
    parses: bool = False  # … and must hold an action too

    def __call__(self, turn: Turn) -> bool:
        parsed = not isinstance(turn.action, Invalid)
        if self.codec is None:
            return parsed
        shaped = not turn.completion.truncated and self.codec.read(turn.completion.token_ids).shape is self.shape
        return shaped and (parsed or not self.parses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """1 where every answer is well formed (UI-R1, GUI-R1, InfiGUI-R1, Mobile-R1; NOTHINK: the action alone)."""

    formed: WellFormed

    async def value(self, case: Case) -> float | None:
        turns = case.trajectory.turns
        return float(bool(turns) and all(self.formed(turn) for turn in turns))


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatBalance:
    """2 x the share of well-formed answers - 1, in [-1, 1] (Mobile-R1, stage 3, arXiv:2506.20332)."""

    formed: WellFormed

    async def value(self, case: Case) -> float | None:
        return shaping.well_formed_share([self.formed(turn) for turn in case.trajectory.turns])


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatError:
    """-1 where the trajectory ended in an answer without an action, else 0 (ARPO, arXiv:2505.16282)."""

    async def value(self, case: Case) -> float | None:
        return -1.0 if case.trajectory.ending is Ending.FORMAT_ERROR else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlong:
    """0 down to -`factor` in the last `buffer` of `limit` sampled tokens (DAPO, arXiv:2503.14476)."""

    limit: int
    buffer: int
    factor: float = 1.0

    async def value(self, case: Case) -> float | None:
        return shaping.overlong(sampled(case.trajectory), limit=self.limit, buffer=self.buffer, factor=self.factor)


def sampled(trajectory: Trajectory) -> int:
    """Tokens that the policy sampled in all of its answers; ends are included, padding does not exist."""
    return sum(turn.completion.token_ids.shape[0] for turn in trajectory.turns)


# ── one answer at a recorded state ────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionType:
    """1 where the action is of the expert's kind (UI-R1, arXiv:2503.21620; GUI-R1, arXiv:2504.10458)."""

    async def value(self, case: Case) -> float | None:
        start, answer = case.recorded, case.answer
        if start is None:
            return None
        return float(answer is not None and same_kind(answer.action, start.expert))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInBox:
    """1 where a click or drag hits what the expert's did; another action of the right kind has 1 too (UI-R1)."""

    rule: HitRule

    async def value(self, case: Case) -> float | None:
        start, answer = case.recorded, case.answer
        if start is None:
            return None
        return float(answer is not None and in_place(answer.action, start, self.rule))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOverlap:
    """Overlap of the answered box with the expert's: graded (InfiGUI-R1), or 1 from `least` on (UI-R1's ablation).

    A box is answered by naming an element, or by a drag from corner to corner. Of states without a box it says nothing.
    """

    least: float | None = None

    async def value(self, case: Case) -> float | None:
        start, answer = case.recorded, case.answer
        meant = next(iter(boxes(start)), None) if start is not None else None
        if start is None or meant is None:
            return None
        given = None if answer is None else answered_box(answer.action, start.observation)
        if given is None:
            return 0.0
        return box_reward(given, meant) if self.least is None else float(overlap(given, meant) >= self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOverlap:
    """How far the words agree with the expert's: 1 from a bound on, or graded where there is no `rule` (GUI-R1).

    Actions without words have an empty text, which equals an empty text alone.
    """

    rule: WordRule | None

    async def value(self, case: Case) -> float | None:
        start, answer = case.recorded, case.answer
        if start is None:
            return None
        if answer is None or isinstance(answer.action, Invalid):
            return 0.0
        given, meant = text_of(answer.action), text_of(start.expert)
        return word_overlap(given, meant) if self.rule is None else float(self.rule.same(given, meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """1 where the kind and every argument are right (InfiGUI-R1, Mobile-R1's actions, GUI-R1's code)."""

    place: HitRule
    text: WordRule
    scroll_place: bool = False

    async def value(self, case: Case) -> float | None:
        start, answer = case.recorded, case.answer
        if start is None:
            return None
        return float(
            answer is not None
            and same_parameters(answer.action, start, place=self.place, text=self.text, scroll_place=self.scroll_place)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """1 where the run's own judge calls an answer at a recorded state the expert's ("Where to Learn …", stage I)."""

    async def value(self, case: Case) -> float | None:
        return None if case.recorded is None else float(case.solved)


# ── what a live session came to ───────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """1 where the task is solved (WebAgent-R1, arXiv:2505.16421; ARPO)."""

    async def value(self, case: Case) -> float | None:
        return None if case.recorded is not None else float(case.solved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """MobileGym's shaped outcome (arXiv:2605.26114).

    The share of checks that passed is the environment's raw reward, in [0, 1]; at 1 the goal is reached. Side effects
    are those of a true `side_effects` in the evidence's state, where it is a JSON object. A trajectory is finished
    where the agent declared it done or answered, or the environment ended it, and aborted where it was declared
    infeasible.
    """

    async def value(self, case: Case) -> float | None:
        if case.recorded is not None:
            return None
        trajectory, evidence = case.trajectory, case.trajectory.evidence
        if evidence is None:
            raise VerifierError(f"a trajectory that ended as {trajectory.ending} left nothing to judge")
        share = min(1.0, max(0.0, evidence.raw_reward))
        last = trajectory.turns[-1].action if trajectory.turns else None
        aborted = last == Finish(FinishStatus.INFEASIBLE)
        return shaping.progress(
            share,
            reached=share == 1.0,
            side_effects=_side_effects(evidence.state),
            aborted=aborted,
            finished=not aborted and (evidence.done or isinstance(last, Finish | Answer)),
        )


def _side_effects(state: str) -> bool:
    try:
        told: object = json.loads(state)
    except ValueError:
        return False
    return isinstance(told, dict) and bool(cast("dict[str, object]", told).get("side_effects"))
