"""Rounds over recorded states: every state once, in an order of the seed's own, and nothing held out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded, Split
from cairn.errors import ConfigError
from cairn.schedule.recorded import RecordedRounds
from cairn.testing.scheduler_contract import SCHEDULER_CONTRACT, Check
from schedule.tracks import EXPERT, SEEN


def states(count: int, *, split: Split = Split.TRAIN) -> Sequence[RecordedState]:
    return [
        RecordedState(
            task=replace(recorded_task("t", number // 2), split=split),
            episode=f"way {number // 2}",
            step=number % 2,
            source="made up",
            start=Recorded(goal=f"go {number}", observation=SEEN, expert=EXPERT),
        )
        for number in range(count)
    ]


def rounds(count: int = 7, *, size: int = 4, seed: int = 3) -> RecordedRounds:
    return RecordedRounds(states=states(count), group_size=size, seed=seed)


def asked(scheduler: RecordedRounds, plans: int) -> list[str]:
    starts = [scheduler.next_plan().start for _ in range(plans)]
    return [start.goal for start in starts if isinstance(start, Recorded)]


@pytest.mark.parametrize("check", SCHEDULER_CONTRACT, ids=lambda c: c.__name__)
def test_the_scheduler_contract(check: Check) -> None:
    check(rounds)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 9))
def test_every_state_is_asked_once_in_a_round(count: int, laps: int, seed: int) -> None:
    goals = asked(rounds(count, seed=seed), laps * count)
    for lap in range(laps):
        assert sorted(goals[lap * count : (lap + 1) * count]) == sorted(f"go {n}" for n in range(count))


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 9))
def test_a_state_round_trip_changes_nothing_wherever_it_happens(count: int, stop: int, seed: int) -> None:
    one, other = rounds(count, seed=seed), rounds(count, seed=seed)
    asked(one, stop)
    other.load_state_dict(one.state_dict())
    assert [one.next_plan() for _ in range(15)] == [other.next_plan() for _ in range(15)]


def test_rounds_and_seeds_have_orders_of_their_own() -> None:
    goals = asked(rounds(12), 24)
    assert goals[:12] != goals[12:]
    assert goals[:12] != asked(rounds(12, seed=4), 12)


def test_one_answer_is_asked_of_each_sibling_and_nothing_is_opened() -> None:
    plan = rounds(size=5).next_plan()
    assert (plan.group_size, plan.depth) == (5, 1)


def test_held_out_states_are_refused() -> None:
    scheduler = RecordedRounds(states=states(2, split=Split.HELD_OUT), group_size=2, seed=0)
    with pytest.raises(ConfigError, match="held-out states are for evaluation alone"):
        scheduler.next_plan()


def test_nothing_to_ask_about_is_refused() -> None:
    with pytest.raises(ConfigError):
        RecordedRounds(states=(), group_size=2, seed=0)


def test_a_run_is_resumed_with_the_set_that_it_began_with() -> None:
    with pytest.raises(ConfigError, match="learned at 7 recorded states and there are 8 now"):
        rounds(8).load_state_dict(rounds(7).state_dict())
