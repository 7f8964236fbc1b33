"""One answer against the expert's action; and which reward judges what."""

from dataclasses import replace

import pytest

from cairn.data.action import Action, Click, DoubleClick, Finish, Hover, Invalid, Point
from cairn.data.checkpoint import Checkpoint, Track
from cairn.data.history import Deed
from cairn.data.ids import ElementId
from cairn.data.matching import Matching
from cairn.data.task import Recorded, Root, Split, Task
from cairn.data.trajectory import Trajectory
from cairn.errors import SessionError, VerifierError
from cairn.rewards.match import ByStart, ExpertMatch, OnTheWay
from cairn.rewards.outcome import Success
from cairn.testing.faults import Call, Fault
from cairn.testing.groups import played_group
from cairn.testing.scripted import COUNT, ScriptedEnvironment
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


# ── another way to the same place ─────────────────────────────────────────────

TASK = Task(template=COUNT, split=Split.TRAIN, index=1)  # press + twice


async def way(environment: ScriptedEnvironment) -> Track:
    """The expert's, saved before every action."""
    session = await environment.open(TASK, start=Root())
    checkpoints: list[Checkpoint] = []
    history: list[Deed] = []
    while (action := await session.expert_action()) is not None:
        seen = await session.observe()
        checkpoints.append(
            Checkpoint(
                task=TASK,
                goal=session.goal,
                history=tuple(history),
                observation=seen,
                expert=action,
                snapshot=await session.snapshot(),
            )
        )
        await session.act(action)
        history.append(Deed(observation=seen, action=action))
    await session.close()
    return Track(task=TASK, checkpoints=tuple(checkpoints))


def answer_at(checkpoint: Checkpoint, action: Action) -> Trajectory:
    plan = replace(plan_for(start=checkpoint.answered()), task=TASK)
    turn = replace(PLAYED.turns[0], action=action, observation=checkpoint.observation)
    return replace(PLAYED, plan=plan, turns=(turn,))


PLUS, MINUS = ElementId(1), ElementId(2)


@pytest.mark.parametrize(
    ("step", "action", "reward"),
    [
        (0, DoubleClick(PLUS), 1.0),  # a press all the same
        (1, DoubleClick(PLUS), 1.0),  # … which ends the episode in success
        (0, Click(MINUS), 0.0),
        (1, Click(MINUS), 0.0),  # back to where it came from
        (0, Hover(PLUS), 0.0),  # changes nothing
        (0, Finish(), 0.0),
    ],
)
async def test_an_answer_that_leads_on_is_right_too(step: int, action: Action, reward: float) -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    track = await way(environment)
    tried: list[Task] = []
    judge = OnTheWay(match=MATCH, sessions=environment, tracks=[track], tried=tried.append)
    assert await judge.score(answer_at(track.checkpoints[step], track.checkpoints[step].expert)) == 1.0
    assert tried == []  # the expert's own needs no trial
    for _ in range(2):
        assert await judge.score(answer_at(track.checkpoints[step], action)) == reward
    assert tried == [TASK]  # the second time it is known
    assert environment.live == 0


async def test_to_stay_where_it_was_is_not_to_get_on() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    first, second = (await way(environment)).checkpoints
    alike = replace(second, observation=first.observation)  # as after a click that only sets the focus
    judge = OnTheWay(
        match=MATCH, sessions=environment, tracks=[Track(task=TASK, checkpoints=(first, alike))], tried=_ignored
    )
    assert await judge.score(answer_at(first, Hover(PLUS))) == 0.0


async def test_without_a_snapshot_the_experts_action_alone_is_right() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    track = await way(environment)
    bare = Track(task=TASK, checkpoints=tuple(replace(c, snapshot=None) for c in track.checkpoints))
    judge = OnTheWay(match=MATCH, sessions=environment, tracks=[bare], tried=_never)
    assert await judge.score(answer_at(bare.checkpoints[0], DoubleClick(PLUS))) == 0.0


async def test_a_trial_that_fails_outside_is_the_judges_failure() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    track = await way(environment)
    broken = ScriptedEnvironment(templates=(COUNT,), faults=[Fault(call=Call.ACT, error=SessionError("gone"))])
    broken._kept.update(environment._kept)
    judge = OnTheWay(match=MATCH, sessions=broken, tracks=[track], tried=_ignored)
    with pytest.raises(VerifierError, match="could not be tried: gone"):
        await judge.score(answer_at(track.checkpoints[0], DoubleClick(PLUS)))
    assert broken.live == 0


def _never(task: Task) -> None:
    raise AssertionError(f"{task.id} was tried")


def _ignored(task: Task) -> None:
    del task
