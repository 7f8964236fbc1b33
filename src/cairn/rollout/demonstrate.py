"""Demonstrations: a scripted expert plays, and each of its actions is written as the policy would have answered."""

import numpy as np

from cairn.data.action import Action
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import Completion, Ending, Evidence, Trajectory, Turn
from cairn.errors import BoundaryError, SessionError
from cairn.ports import Codec, ExpertSession, SessionFactory
from cairn.rollout.waiting import bounded

EXPERT_VERSION = -1
"""The policy version of tokens that no policy sampled."""

_OPENING = 120.0  # seconds, waiting for a free place included
_STEP = 60.0  # seconds


async def run_demonstration(
    plan: RolloutPlan,
    *,
    sessions: SessionFactory,
    codec: Codec,
    attempt: int = 0,
    kept: list[SnapshotId] | None = None,
) -> Trajectory:
    """Let the session's own expert play `plan` once; the state before each action is saved, and its id put in `kept`.

    What fails outside is recorded, never raised. An expert that knows no action, or one that the codec cannot say,
    ends the trajectory where it stands: the judge will call it a failure, and it is reported by template.
    """
    turns: list[Turn] = []
    goal = ""
    ending, evidence, error = Ending.OUT_OF_TURNS, None, None
    try:
        async with bounded(SessionError, f"open {plan.task.id}", seconds=_OPENING):
            session = await sessions.open(plan.task, start=plan.start)
        try:
            if not isinstance(session, ExpertSession):
                raise SessionError(f"{plan.task.id} has no scripted expert")
            goal = session.goal
            ending, evidence = await _play(plan, session, codec, turns, kept)
        finally:
            async with bounded(SessionError, f"close {plan.task.id}", seconds=_STEP):
                await session.close()
    except BoundaryError as failure:
        ending, evidence, error = Ending.INFRASTRUCTURE_ERROR, None, str(failure)
    return Trajectory(
        plan=plan,
        sibling=0,
        attempt=attempt,
        goal=goal,
        turns=tuple(turns),
        ending=ending,
        evidence=evidence,
        error=error,
    )


async def _play(
    plan: RolloutPlan, session: ExpertSession, codec: Codec, turns: list[Turn], kept: list[SnapshotId] | None
) -> tuple[Ending, Evidence]:
    ending = Ending.OUT_OF_TURNS
    for index in range(plan.depth):
        async with bounded(SessionError, f"expert, turn {index}", seconds=_STEP):
            seen = await session.observe()
            wanted = await session.expert_action()
        turn = None if wanted is None else _turn(seen.instruction(session.goal), wanted, seen, turns, codec)
        if turn is None:
            break
        if kept is not None:
            async with bounded(SessionError, f"save, turn {index}", seconds=_STEP):
                saved = await session.snapshot()
            if saved is not None:
                kept.append(saved)
        turns.append(turn)
        async with bounded(SessionError, f"act, turn {index}", seconds=_STEP):
            step = await session.act(turn.action)
        if step.done:
            ending = Ending.DONE
            break
    async with bounded(SessionError, "evidence", seconds=_STEP):
        return ending, await session.evidence()


def _turn(goal: str, wanted: Action, seen: Observation, turns: list[Turn], codec: Codec) -> Turn | None:
    action = codec.primitive(wanted, seen)
    answers = codec.answers(goal, action, seen)
    if not answers:
        return None
    ids = answers[0]
    return Turn(
        observation=seen,
        prompt=codec.prompt(goal, turns, seen),
        completion=Completion(
            token_ids=ids,
            logprobs=np.zeros(ids.shape, np.float32),
            versions=np.full(ids.shape, EXPERT_VERSION, np.int32),
            truncated=False,
        ),
        action=action,
    )
