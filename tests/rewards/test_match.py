"""One answer against the expert's action; and which reward judges what."""

from dataclasses import replace

import pytest

from cairn.data.action import Click, Invalid, Point
from cairn.data.matching import Matching
from cairn.data.task import Recorded, Root
from cairn.data.trajectory import Trajectory
from cairn.errors import VerifierError
from cairn.rewards.match import ByStart, ExpertMatch
from cairn.rewards.outcome import Success
from cairn.testing.groups import played_group
from rollout.stage import plan_for

PLAYED = played_group(plan_for(), [1.0]).members[0].trajectory
SEEN = PLAYED.turns[0].observation
MATCH = ExpertMatch(rules=Matching())


def answered(action: Click | Invalid) -> Trajectory:
    start = Recorded(goal="g", observation=SEEN, expert=Click(Point(0.5, 0.5)))
    return replace(PLAYED, plan=plan_for(start=start), turns=(replace(PLAYED.turns[0], action=action),))


@pytest.mark.parametrize(
    ("action", "reward"),
    [(Click(Point(0.52, 0.48)), 1.0), (Click(Point(0.7, 0.5)), 0.0), (Invalid("?", "no"), 0.0)],
)
async def test_the_experts_action_earns_one(action: Click | Invalid, reward: float) -> None:
    assert await MATCH.score(answered(action)) == reward


async def test_a_live_episode_has_no_expert_to_match() -> None:
    with pytest.raises(VerifierError, match="does not start at a recorded state"):
        await MATCH.score(replace(PLAYED, plan=plan_for(start=Root())))


async def test_no_answer_earns_nothing() -> None:
    assert await MATCH.score(replace(answered(Invalid("?", "no")), turns=())) == 0.0


async def test_each_start_has_its_own_judge() -> None:
    judge = ByStart(recorded=MATCH, lived=Success())
    assert await judge.score(answered(Click(Point(0.7, 0.5)))) == 0.0
    assert await judge.score(replace(PLAYED, plan=plan_for(start=Root()))) == 1.0
