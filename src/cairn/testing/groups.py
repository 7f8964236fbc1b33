"""Made-up groups, for tests of what reads them."""

from collections.abc import Sequence

import numpy as np

from cairn.data.action import Click
from cairn.data.ids import ElementId
from cairn.data.observation import Observation
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import (
    Completion,
    Ending,
    Evidence,
    Outcome,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    Trajectory,
    Turn,
)


def played_group(plan: RolloutPlan, rewards: Sequence[float]) -> ScoredGroup:
    """A group of one-turn trajectories with these rewards; 1 is a success, anything else a failure."""
    return ScoredGroup(plan=plan, members=tuple(_member(plan, i, reward) for i, reward in enumerate(rewards)))


def _member(plan: RolloutPlan, sibling: int, reward: float) -> ScoredTrajectory:
    seen = Observation(image=None, elements=(), accessibility="", url="made-up:", digest=str(sibling))
    turn = Turn(
        observation=seen,
        prompt=Prompt(token_ids=np.array([32, 33], np.int32), images=()),
        completion=Completion(
            token_ids=np.array([1 + sibling, 0], np.int32),
            logprobs=np.array([-0.5, -0.25], np.float32),
            versions=np.array([0, 0], np.int32),
            truncated=False,
        ),
        action=Click(ElementId(1 + sibling)),
    )
    trajectory = Trajectory(
        plan=plan,
        sibling=sibling,
        attempt=0,
        goal="made up",
        turns=(turn,),
        ending=Ending.DONE,
        evidence=Evidence(done=True, raw_reward=reward, state="{}"),
        error=None,
    )
    outcome = Outcome.SUCCESS if reward == 1.0 else Outcome.FAILURE
    return ScoredTrajectory(trajectory=trajectory, outcome=outcome, reward=reward)
