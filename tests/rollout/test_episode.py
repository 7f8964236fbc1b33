import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import Click, Invalid
from cairn.data.history import Deed
from cairn.data.ids import ElementId
from cairn.data.observation import Observation
from cairn.data.task import FromSnapshot, Recorded
from cairn.data.trajectory import Ending, Prompt, Trajectory
from cairn.errors import InvariantError
from cairn.ports import Past
from cairn.rollout.episode import Limits, turn_seed
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted import CHOOSE, ENTER
from cairn.testing.scripted_policy import END, FINISH, NONSENSE, TYPE, ScriptedCodec, replay
from rollout.stage import MINUS, PLUS, Stage, plan_for

GONE = ConnectionResetError("gone")


def seconds(trajectory: Trajectory) -> float:
    spent = trajectory.seconds
    return spent.opening + spent.environment + spent.engine + spent.closing


async def test_an_episode_that_the_environment_ends_is_done() -> None:
    stage = Stage()
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert (played.ending, len(played.turns), played.goal) == (Ending.DONE, 3, "count to 3")
    assert played.evidence is not None
    assert (played.evidence.done, played.evidence.raw_reward) == (True, 1.0)
    assert stage.environment.live == 0


async def test_a_plan_bounds_the_turns() -> None:
    played = await Stage(answers=replay(MINUS)).episodes.run(plan_for(depth=2), sibling=0)
    assert (played.ending, len(played.turns)) == (Ending.OUT_OF_TURNS, 2)
    assert played.evidence is not None
    assert not played.evidence.done


async def test_an_agent_that_finishes_is_done_without_reward() -> None:
    played = await Stage(answers=replay(FINISH)).episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.DONE
    assert played.evidence is not None
    assert played.evidence.raw_reward == 0.0


async def test_the_limit_on_sampled_tokens_counts_the_whole_trajectory() -> None:
    stage = Stage(answers=replay(MINUS), limits=Limits(sampled_tokens=4))
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert (played.ending, len(played.turns)) == (Ending.OUT_OF_TOKENS, 2)
    assert played.evidence is not None


async def test_an_answer_is_given_no_more_tokens_than_the_trajectory_has_left() -> None:
    stage = Stage(answers=replay(MINUS), limits=Limits(sampled_tokens=3))
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.OUT_OF_TOKENS
    assert [t.completion.token_ids.shape[0] for t in played.turns] == [2, 1]
    assert played.turns[1].completion.truncated


async def test_a_cut_answer_is_not_performed() -> None:
    stage = Stage(answers=lambda prompt, seed: [PLUS, PLUS, PLUS, PLUS, PLUS])
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.OUT_OF_TOKENS
    assert played.turns[0].action == Invalid(text="", reason="the answer was cut after 4 tokens")
    assert played.evidence is not None
    assert '"number": 0' in played.evidence.state


async def test_the_first_invalid_answer_ends_an_episode_by_default() -> None:
    played = await Stage(answers=replay(NONSENSE)).episodes.run(plan_for(), sibling=0)
    assert (played.ending, len(played.turns)) == (Ending.FORMAT_ERROR, 1)
    assert played.evidence is not None


async def test_an_invalid_answer_below_the_limit_costs_a_turn_and_is_explained_to_the_policy() -> None:
    stage = Stage(answers=replay(NONSENSE, PLUS), limits=Limits(invalid_answers=2))
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert (played.ending, len(played.turns)) == (Ending.DONE, 4)
    assert played.turns[1].observation.message == f"token {NONSENSE} is no action"
    assert played.turns[2].observation.message == ""


async def test_the_nth_invalid_answer_ends_the_episode_wherever_the_others_were() -> None:
    stage = Stage(answers=replay(NONSENSE, PLUS, NONSENSE), limits=Limits(invalid_answers=2))
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert (played.ending, len(played.turns)) == (Ending.FORMAT_ERROR, 3)


async def test_what_an_action_came_to_is_shown_with_the_next_observation() -> None:
    played = await Stage(answers=replay(9, PLUS)).episodes.run(plan_for(), sibling=0)
    assert played.turns[1].observation.message == "no element 9"
    assert b"no element 9" in bytes((played.turns[1].prompt.token_ids - 32).astype("uint8"))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (Call.OPEN, "open scripted/count#2"),
        (Call.OBSERVE, "observe, turn 0"),
        (Call.GENERATE, "generate, turn 0"),
        (Call.ACT, "act, turn 0"),
        (Call.EVIDENCE, "evidence"),
    ],
)
async def test_what_fails_outside_is_recorded_and_the_session_is_closed(call: Call, says: str) -> None:
    stage = Stage(faults=[Fault(call=call, error=GONE)])
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert (played.ending, played.evidence) == (Ending.INFRASTRUCTURE_ERROR, None)
    assert played.error == f"{says}: ConnectionResetError: gone"
    assert stage.environment.live == 0


@pytest.mark.parametrize(
    ("call", "limit"),
    [(Call.OPEN, 120), (Call.OBSERVE, 60), (Call.GENERATE, 120), (Call.ACT, 60), (Call.EVIDENCE, 60)],
)
async def test_what_hangs_is_given_up_and_named(call: Call, limit: int) -> None:
    stage = Stage(faults=[Fault(call=call, delay=math.inf)])
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert call.value in (played.error or "")
    assert f"no answer within {limit} s" in (played.error or "")
    assert stage.environment.live == 0
    assert asyncio.get_running_loop().time() == pytest.approx(limit)


async def test_a_timeout_of_the_environment_is_not_taken_for_ours() -> None:
    stage = Stage(faults=[Fault(call=Call.ACT, error=TimeoutError("page"))])
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.error == "act, turn 0: TimeoutError: page"


async def test_an_episode_that_is_slow_at_every_step_runs_out_of_wall_time() -> None:
    stage = Stage(
        answers=replay(MINUS),
        faults=[Fault(call=Call.ACT, delay=4.0)],
        limits=Limits(episode_seconds=10.0, step_seconds=6.0),
    )
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert (
        played.error == "act, turn 2, at the end of the 10 s of the episode (rollout.max_seconds): no answer within 2 s"
    )
    assert len(played.turns) == 3


async def test_an_episode_whose_time_is_up_asks_nothing_more() -> None:
    stage = Stage(faults=[Fault(call=Call.OBSERVE, delay=9.0)], limits=Limits(episode_seconds=9.0, step_seconds=60.0))
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert "9 s of the episode" in (played.error or "")
    assert stage.environment.live == 0


async def test_waiting_for_a_free_place_is_not_charged_to_the_episode() -> None:
    stage = Stage(
        capacity=1,
        faults=[Fault(call=Call.OBSERVE, nth=0, delay=20.0)],
        limits=Limits(episode_seconds=30.0, open_seconds=100.0),
    )
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(stage.episodes.run(plan_for(), sibling=0))
        second = tasks.create_task(stage.episodes.run(plan_for(), sibling=1))
    assert (first.result().ending, second.result().ending) == (Ending.DONE, Ending.DONE)
    assert second.result().seconds.opening == pytest.approx(20.0)
    assert second.result().seconds.environment == pytest.approx(20.0)
    assert stage.environment.peak == 1


async def test_time_is_kept_by_component() -> None:
    faults = [Fault(call=c, nth=0, delay=d) for c, d in [(Call.OPEN, 1), (Call.GENERATE, 2), (Call.ACT, 4)]]
    faults += [Fault(call=c, delay=d) for c, d in [(Call.EVIDENCE, 8), (Call.CLOSE, 16)]]
    played = await Stage(faults=faults).episodes.run(plan_for(), sibling=0)
    spent = played.seconds
    assert (spent.opening, spent.engine, spent.environment, spent.closing) == pytest.approx((1, 2, 12, 16))
    assert seconds(played) == pytest.approx(asyncio.get_running_loop().time())


@pytest.mark.parametrize("fault", [Fault(call=Call.CLOSE, error=GONE), Fault(call=Call.CLOSE, delay=math.inf)])
async def test_a_session_that_does_not_close_is_reported_and_its_trajectory_stands(fault: Fault) -> None:
    stage = Stage(faults=[fault])
    played = await stage.episodes.run(plan_for(), sibling=0)
    assert played.ending is Ending.DONE
    assert stage.events.kinds() == ["close_failed"]


async def test_our_own_bugs_are_not_outside_failures() -> None:
    stage = Stage(faults=[Fault(call=Call.ACT, error=InvariantError("ours"))])
    with pytest.raises(InvariantError, match="ours"):
        await stage.episodes.run(plan_for(), sibling=0)
    assert stage.environment.live == 0


@pytest.mark.parametrize("call", [Call.OPEN, Call.OBSERVE, Call.GENERATE, Call.ACT, Call.EVIDENCE, Call.CLOSE])
async def test_a_cancelled_episode_is_recorded_and_its_session_closed(call: Call) -> None:
    stage = Stage(faults=[Fault(call=call, delay=9.0)])
    recorded: list[Trajectory] = []
    task = asyncio.create_task(stage.episodes.run(plan_for(), sibling=0, cancelled=recorded.append))
    await asyncio.sleep(5.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [t.ending for t in recorded] == [Ending.CANCELLED]
    assert stage.environment.live == 0


async def test_closing_survives_repeated_cancellation() -> None:
    stage = Stage(faults=[Fault(call=Call.ACT, delay=math.inf), Fault(call=Call.CLOSE, delay=10.0)])
    recorded: list[Trajectory] = []
    task = asyncio.create_task(stage.episodes.run(plan_for(), sibling=0, cancelled=recorded.append))
    for _ in range(3):
        await asyncio.sleep(2.0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() == pytest.approx(12.0)
    assert [len(t.turns) for t in recorded] == [1]
    assert recorded[0].seconds.closing == pytest.approx(10.0)


async def test_an_episode_can_start_from_a_snapshot() -> None:
    stage = Stage()
    session = await stage.environment.open(plan_for().task, start=plan_for().start)
    await session.act(Click(ElementId(1)))
    kept = await session.snapshot()
    await session.close()
    assert kept is not None
    played = await stage.episodes.run(plan_for(start=FromSnapshot(id=kept)), sibling=0)
    assert (played.ending, len(played.turns)) == (Ending.DONE, 2)


@pytest.mark.parametrize(
    ("answer", "ending"),
    [([PLUS, END], Ending.DONE), ([NONSENSE, END], Ending.FORMAT_ERROR), ([PLUS], Ending.OUT_OF_TOKENS)],
)
async def test_a_recorded_state_is_answered_once_and_opens_nothing(answer: list[int], ending: Ending) -> None:
    stage = Stage(answers=lambda prompt, seed: answer, limits=Limits(invalid_answers=3))
    session = await stage.environment.open(plan_for().task, start=plan_for().start)
    seen = await session.observe()
    await session.close()
    start = Recorded(goal="count to 9", observation=seen, expert=Click(ElementId(1)))
    played = await stage.episodes.run(plan_for(start=start), sibling=0)
    assert (played.ending, len(played.turns), played.goal) == (ending, 1, "count to 9")
    assert played.evidence is not None
    assert (played.evidence.done, played.evidence.raw_reward) == (False, 0.0)
    assert len(stage.environment.opened) == 1


class Attentive(ScriptedCodec):
    """Remembers what it was told of earlier turns."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Sequence[Past]] = []

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        self.told.append(tuple(turns))
        return super().prompt(goal, turns, seen)


async def test_what_was_done_before_a_recorded_state_is_part_of_the_prompt() -> None:
    codec = Attentive()
    stage = Stage(codec=codec)
    session = await stage.environment.open(plan_for().task, start=plan_for().start)
    before = Deed(observation=await session.observe(), action=Click(ElementId(1)))
    await session.close()
    start = Recorded(goal="g", history=(before,), observation=before.observation, expert=before.action)
    await stage.episodes.run(plan_for(start=start), sibling=0)
    assert codec.told == [(before,)]


async def test_text_is_typed_and_submitted() -> None:
    stage = Stage(answers=replay(TYPE, 2))
    played = await stage.episodes.run(plan_for(ENTER, index=0), sibling=0)
    assert played.evidence is not None
    assert played.evidence.raw_reward == 1.0


async def test_a_wrong_choice_ends_the_episode_below_zero() -> None:
    played = await Stage(answers=replay(2)).episodes.run(plan_for(CHOOSE, index=0), sibling=0)
    assert (played.ending, played.evidence and played.evidence.raw_reward) == (Ending.DONE, -1.0)


async def test_each_turn_is_sampled_under_its_own_seed() -> None:
    stage = Stage()
    await stage.episodes.run(plan_for(), sibling=0)
    await stage.episodes.run(plan_for(), sibling=0, attempt=1)
    await stage.episodes.run(plan_for(), sibling=1)
    assert len(set(stage.engine.seeds)) == len(stage.engine.seeds) == 9


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1) | st.integers(0, 3), st.integers(0, 64), st.integers(0, 4), st.integers(0, 40)
        ),
        min_size=2,
        unique=True,
    )
)
def test_no_two_turns_share_a_seed(places: list[tuple[int, int, int, int]]) -> None:
    seeds = [turn_seed(replace(plan_for(), seed=p), sibling=s, attempt=a, turn=t) for p, s, a, t in places]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
