import pytest

from cairn.errors import ConfigError
from cairn.schedule.stored import StoredRounds
from rollout.stage import plan_for

PLANS = [plan_for(group=name) for name in "abcde"]


def rounds(seed: int = 0) -> StoredRounds:
    return StoredRounds(plans=PLANS, seed=seed)


def test_every_group_comes_once_in_a_round_and_each_round_has_an_order_of_its_own() -> None:
    scheduler = rounds()
    laps = [[scheduler.next_plan().group_id for _ in PLANS] for _ in range(4)]
    assert all(sorted(lap) == list("abcde") for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 1


def test_a_resumed_scheduler_goes_on_where_it_was() -> None:
    straight, first, second = rounds(), rounds(), rounds()
    expected = [straight.next_plan() for _ in range(13)]
    for _ in range(7):
        first.next_plan()
    second.load_state_dict(first.state_dict())
    assert [second.next_plan() for _ in range(6)] == expected[7:]


def test_a_stored_run_that_has_changed_and_one_without_a_difference_are_refused() -> None:
    scheduler = rounds()
    with pytest.raises(ConfigError, match="4 stored groups and there are 5 now"):
        scheduler.load_state_dict({"count": 1, "plans": 4})
    with pytest.raises(ConfigError, match="nothing to compare"):
        StoredRounds(plans=[], seed=0)
