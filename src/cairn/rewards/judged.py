"""Terms that ask a judge, what it is told, and a judge that asks nobody."""

from dataclasses import dataclass

from cairn.codecs.text import page_text
from cairn.codecs.text_grammar import format_action
from cairn.codecs.thinking import ROOMY
from cairn.data.action import Action, Invalid
from cairn.data.action_json import kind_of
from cairn.data.matching import token_f1
from cairn.data.observation import Observation
from cairn.data.trajectory import Trajectory
from cairn.ports import Asked, Judge, Opinion, Question, ReadableCodec
from cairn.rewards.terms import Case

_BEST = 10  # marks are whole, as those of other judges are


@dataclass(frozen=True, slots=True, kw_only=True)
class SubGoal:
    """How well the thought agrees with what was to be done next (InfiGUI-R1, arXiv:2504.14239).

    0 where nothing was thought; of states whose next step nobody has written down it says nothing.
    """

    judge: Judge
    codec: ReadableCodec

    async def value(self, case: Case) -> float | None:
        start, answer = case.recorded, case.answer
        if start is None or not start.sub_goal:
            return None
        thought = self.codec.read(answer.completion.token_ids).thought if answer is not None else ""
        if not thought:
            return 0.0
        question = Question(about=Asked.SUB_GOAL, goal=start.goal, said=thought, wanted=start.sub_goal)
        return (await self.judge.judge(question)).score


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a judge thinks of a whole episode (Mobile-R1, stage 3, arXiv:2506.20332).

    With `least` it is 1 from that score on, and 0 below. An episode without a turn is worth nothing, unasked.
    """

    judge: Judge
    least: float | None = None

    async def value(self, case: Case) -> float | None:
        if case.recorded is not None:
            return None
        if not case.trajectory.turns:
            return 0.0
        score = (await self.judge.judge(about_task(case.trajectory))).score
        return score if self.least is None else float(score >= self.least)


def about_task(trajectory: Trajectory) -> Question:
    """What a judge of episodes is told: the steps, what the agent was told of them, and the last page that it saw.

    What the environment itself thinks of the outcome is not part of it.
    """
    lines: list[str] = []
    for number, turn in enumerate(trajectory.turns, start=1):
        told = " ".join(turn.observation.message.split())
        lines += [f"   (then it was told: {told})"] if told else []
        lines.append(f"{number}. {_described(turn.action, turn.observation)}")
    lines.append(f"How it ended: {trajectory.ending.value.replace('_', ' ')}.")
    if trajectory.turns:
        lines += ["The page that the last step was taken on:", page_text(trajectory.turns[-1].observation, ROOMY)]
    return Question(about=Asked.TASK, goal=trajectory.goal, said="\n".join(lines))


def _described(action: Action, seen: Observation) -> str:
    if isinstance(action, Invalid):
        return "an answer that held no action"
    return format_action(action, seen) or kind_of(action)


class OverlapJudge:
    """Implements `Judge` without asking anybody: the F1 of the words said and wanted, in whole marks from 0 to 10.

    Where nothing in particular is wanted, the words are compared with the goal's. It is for tests and for trying a
    recipe: it counts words and understands none.
    """

    name = "offline"

    async def judge(self, question: Question) -> Opinion:
        score = round(_BEST * token_f1(question.said, question.wanted or question.goal)) / _BEST
        return Opinion(score=score, reason="words in common")
