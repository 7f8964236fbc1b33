"""Starts by learning progress: every one is tried, what moves is preferred, nothing is given up."""

from collections import Counter

import pytest

from cairn.data.task import FromSnapshot, RolloutPlan, Root
from cairn.errors import ConfigError
from cairn.schedule.bandit import BanditOptions, LearningProgress
from cairn.schedule.orders import Writer
from cairn.testing.groups import played_group
from cairn.testing.scheduler_contract import SCHEDULER_CONTRACT, Check
from schedule.tracks import came_to, track_of


def bandit(*steps: int, options: BanditOptions | None = None) -> LearningProgress:
    tracks = [track_of(n, index=i) for i, n in enumerate(steps or (3, 2))]
    return LearningProgress(tracks=tracks, writer=Writer(name="b", seed=1), options=options)


def start(plan: RolloutPlan) -> tuple[int, str]:
    return plan.task.index, plan.start.id if isinstance(plan.start, FromSnapshot) else "root"


@pytest.mark.parametrize("check", SCHEDULER_CONTRACT, ids=lambda c: c.__name__)
def test_the_scheduler_contract(check: Check) -> None:
    check(bandit)


def test_every_start_is_tried_once_the_deepest_first() -> None:
    scheduler = bandit()
    first = [scheduler.next_plan() for _ in range(5)]
    assert [start(plan) for plan in first] == [(0, "s0x2"), (0, "s0x1"), (1, "s1x1"), (0, "root"), (1, "root")]
    assert {plan.group_size for plan in first} == {8}
    assert [plan.depth for plan in first] == [10, 11, 11, 12, 12]


def test_starts_whose_success_is_changing_are_preferred_and_none_is_given_up() -> None:
    scheduler = bandit(1, 1, 1, 1, 1)
    visits: Counter[int] = Counter()
    for number in range(600):
        plan = scheduler.next_plan()
        visits[plan.task.index] += 1
        solved = {0: 8, 1: 0, 2: 8 * (number // 60 % 2)}.get(plan.task.index, 8)
        scheduler.observe(came_to(plan, solved=solved))
    assert visits[2] > 3 * max(visits[task] for task in (0, 1, 3, 4))
    assert min(visits.values()) > 5
    assert scheduler.progress(0, -1) < 0.01


def test_states_without_a_snapshot_are_no_starts() -> None:
    track = track_of(3, saved=False)
    scheduler = LearningProgress(tracks=[track], writer=Writer(name="b", seed=0))
    assert {type(scheduler.next_plan().start) for _ in range(5)} == {Root}


def test_a_lost_group_is_no_evidence() -> None:
    scheduler = bandit(1)
    scheduler.observe(played_group(scheduler.next_plan(), []))
    assert scheduler.progress(0, -1) == 0.0


@pytest.mark.parametrize("options", [{"slow": 0.5}, {"fast": 1.5}, {"size": 1}, {"floor": 0.0}, {"mixed": -1.0}])
def test_options_that_cannot_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        BanditOptions(**options)  # pyright: ignore[reportArgumentType]


def test_there_must_be_a_task() -> None:
    with pytest.raises(ConfigError):
        LearningProgress(tracks=[], writer=Writer(name="b", seed=0))
