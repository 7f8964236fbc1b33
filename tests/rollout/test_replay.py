"""Success replay: when a group is helped, with what, and what is stored."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.advantages import group_relative
from cairn.data.ids import SnapshotId
from cairn.data.task import FromSnapshot, RolloutPlan, Start
from cairn.data.trajectory import Outcome, ScoredGroup
from cairn.errors import ConfigError
from cairn.rollout.replay import CODE, PAPER, ReplayOptions, SuccessReplay, Trigger
from cairn.testing.groups import played_group
from rollout.stage import plan_for


def plan(number: int, *, index: int = 2, start: Start | None = None) -> RolloutPlan:
    return plan_for(group=f"g{number}", size=8, index=index, start=start)


def group(number: int, *, solved: int, index: int = 2, start: Start | None = None) -> ScoredGroup:
    return played_group(plan(number, index=index, start=start), [1.0] * solved + [0.0] * (8 - solved))


def replay(options: ReplayOptions = PAPER) -> SuccessReplay:
    return SuccessReplay(options=options, seed=3)


def test_a_group_that_failed_altogether_gets_one_stored_success() -> None:
    buffer = replay()
    buffer([group(0, solved=2)])
    failed = group(1, solved=0)
    (helped,) = buffer([failed])
    assert sorted(helped.rewards) == [0.0] * 7 + [1.0]
    assert helped.plan == failed.plan
    assert {m.trajectory.plan.group_id for m in helped.members} == {failed.plan.group_id}
    advantages = np.sort(group_relative(helped.rewards, scale="std"))
    assert advantages[-1] == pytest.approx(2.475, abs=2e-3)
    assert advantages[0] == pytest.approx(-0.354, abs=2e-3)


def test_a_group_with_a_success_of_its_own_is_left_alone() -> None:
    buffer = replay()
    buffer([group(0, solved=2)])
    own = group(1, solved=1)
    assert buffer([own]) == (own,)


def test_successes_are_stored_after_the_groups_of_their_round_were_helped() -> None:
    buffer = replay()
    assert buffer([group(0, solved=1), failed := group(1, solved=0)])[1] == failed
    assert max(buffer([failed])[0].rewards) == 1.0


def test_another_tasks_success_is_no_help() -> None:
    buffer = replay()
    buffer([group(0, solved=2)])
    other = group(1, solved=0, index=7)
    assert buffer([other]) == (other,)


def test_a_stored_success_keeps_the_log_probabilities_of_who_played_it() -> None:
    buffer = replay()
    source = group(0, solved=1)
    buffer([source])
    (helped,) = buffer([group(1, solved=0)])
    found = next(m for m in helped.members if m.reward == 1.0)
    assert found.trajectory.turns == source.members[0].trajectory.turns


@given(st.lists(st.integers(0, 8), min_size=1, max_size=12))
def test_at_most_so_many_are_kept_and_the_oldest_leave_first(solved: list[int]) -> None:
    buffer = replay(ReplayOptions(capacity=3))
    for number, successes in enumerate(solved):
        buffer([group(number, solved=successes)])
    assert buffer.stored(plan(0).task.id) == min(3, sum(solved))


def test_what_was_put_in_is_not_stored_again_and_nothing_is_stored_twice() -> None:
    buffer = replay()
    buffer([group(0, solved=1)])
    for number in range(1, 5):
        buffer([group(number, solved=0)])
    buffer.remember(group(0, solved=1))
    assert buffer.stored(plan(0).task.id) == 1


def test_replay_can_really_be_switched_off() -> None:
    buffer = replay(ReplayOptions(capacity=0))
    buffer.remember(group(9, solved=8))
    buffer([group(0, solved=8)])
    failed = group(1, solved=0)
    assert buffer([failed]) == (failed,)
    assert buffer.stored(failed.plan.task.id) == 0


def test_the_code_replaces_the_first_and_the_paper_any() -> None:
    for options, places in ((CODE, {0}), (PAPER, set(range(8)))):
        buffer = replay(options)
        buffer([group(0, solved=1)])
        found = {int(np.argmax(buffer([group(n, solved=0)])[0].rewards)) for n in range(1, 60)}
        assert found == places


def test_one_success_in_eight_is_enough_for_the_codes_thresholds_too() -> None:
    buffer = replay(ReplayOptions(trigger=Trigger.THRESHOLDS))
    buffer([group(0, solved=1)])
    one = group(1, solved=1)
    assert buffer([one]) == (one,)


def test_suffixes_are_neither_stored_nor_helped() -> None:
    start = FromSnapshot(id=SnapshotId("s"))
    buffer = replay()
    buffer([group(0, solved=8, start=start)])
    assert buffer.stored(plan(0).task.id) == 0
    buffer([group(1, solved=8)])
    suffix = group(2, solved=0, start=start)
    assert buffer([suffix]) == (suffix,)


def test_a_group_whose_members_were_all_lost_stays_empty() -> None:
    buffer = replay()
    buffer([group(0, solved=1)])
    empty = replace(group(1, solved=0), members=())
    assert buffer([empty]) == (empty,)


def test_format_errors_count_as_failures() -> None:
    buffer = replay()
    buffer([group(0, solved=1)])
    failed = group(1, solved=0)
    members = tuple(replace(m, outcome=Outcome.FORMAT_ERROR, reward=-1.0) for m in failed.members)
    (helped,) = buffer([replace(failed, members=members)])
    assert sorted(helped.rewards) == [-1.0] * 7 + [1.0]


def test_a_buffer_has_no_negative_size() -> None:
    with pytest.raises(ConfigError):
        ReplayOptions(capacity=-1)
