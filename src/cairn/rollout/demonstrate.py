"""Demonstrations: somebody who knows plays, and each action is written as the policy would have answered."""

from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from cairn.data.action import Action
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import Completion, Ending, Evidence, Trajectory, Turn
from cairn.errors import BoundaryError, SessionError
from cairn.ports import Codec, ExpertSession, Session, SessionFactory
from cairn.rollout.waiting import bounded

EXPERT_VERSION = -1
"""The policy version of tokens that no policy sampled."""

Guide = Callable[[Session, Observation, Sequence[Turn]], Awaitable[Action | None]]
"""What to do next in a session that shows that page after those turns; None where nothing is known."""

_OPENING = 120.0  # seconds, waiting for a free place included
_STEP = 60.0  # seconds


async def ask_expert(session: Session, seen: Observation, turns: Sequence[Turn]) -> Action | None:
    """The session's own expert. Implements `Guide`."""
    del seen, turns
    if not isinstance(session, ExpertSession):
        raise SessionError("the session has no scripted expert")
    return await session.expert_action()


def retrace(actions: Sequence[Action]) -> Guide:
    """The same actions again."""

    async def guide(session: Session, seen: Observation, turns: Sequence[Turn]) -> Action | None:
        del session, seen
        return actions[len(turns)] if len(turns) < len(actions) else None

    return guide


async def run_demonstration(
    plan: RolloutPlan,
    *,
    sessions: SessionFactory,
    codec: Codec,
    guide: Guide = ask_expert,
    attempt: int = 0,
    kept: list[SnapshotId] | None = None,
) -> Trajectory:
    """Let `guide` play `plan` once; the state before each action is saved, and its id put in `kept`.

    What fails outside is recorded, never raised. A guide that knows no action, or one that the codec cannot say, ends
    the trajectory where it stands: the judge will call it a failure, and it is reported by template.
    """
    turns: list[Turn] = []
    goal = ""
    ending, evidence, error = Ending.OUT_OF_TURNS, None, None
    try:
        async with bounded(SessionError, f"open {plan.task.id}", seconds=_OPENING):
            session = await sessions.open(plan.task, start=plan.start)
        try:
            goal = session.goal
            ending, evidence = await _play(plan, session, codec, guide, turns, kept)
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
    plan: RolloutPlan,
    session: Session,
    codec: Codec,
    guide: Guide,
    turns: list[Turn],
    kept: list[SnapshotId] | None,
) -> tuple[Ending, Evidence]:
    ending = Ending.OUT_OF_TURNS
    for index in range(plan.depth):
        async with bounded(SessionError, f"expert, turn {index}", seconds=_STEP):
            seen = await session.observe()
            wanted = await guide(session, seen, turns)
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
