"""Rounds over a fixed set of tasks, and the two ways to spend less on some of them."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.task import Purpose, Root, Split, Task
from cairn.errors import ConfigError
from cairn.schedule.tasks import CoolDown, Shrinking, TaskRounds
from cairn.testing.groups import played_group
from cairn.testing.scheduler_contract import SCHEDULER_CONTRACT, Check
from schedule.tracks import LONG

TASKS = tuple(Task(template=LONG, split=Split.TRAIN, index=i) for i in range(5))


def rounds(
    *,
    tasks: Sequence[Task] = TASKS,
    group_size: int = 8,
    shrinking: Shrinking | None = None,
    cool_down: CoolDown | None = None,
) -> TaskRounds:
    return TaskRounds(tasks=tasks, group_size=group_size, seed=1, shrinking=shrinking, cool_down=cool_down)


@pytest.mark.parametrize("check", SCHEDULER_CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize(
    "options", [{}, {"shrinking": Shrinking()}, {"cool_down": CoolDown()}], ids=["vanilla", "shrinking", "cool-down"]
)
def test_the_scheduler_contract(check: Check, options) -> None:
    check(lambda: rounds(**options))


@given(st.integers(1, 40))
def test_vanilla_visits_every_task_once_in_a_round(plans: int) -> None:
    scheduler = rounds()
    asked = [scheduler.next_plan() for _ in range(plans)]
    visits = Counter(plan.task.index for plan in asked)
    assert max(visits.values()) - min(visits.get(i, 0) for i in range(5)) <= 1
    assert {(type(p.start), p.group_size, p.purpose, p.depth) for p in asked} == {(Root, 8, Purpose.TRAIN, 12)}


def test_groups_of_tasks_that_succeed_often_are_smaller() -> None:
    shrinking = Shrinking()
    assert [shrinking.size(8, p) for p in (0.0, 0.6, 0.7, 0.8, 0.9, 1.0)] == [8, 8, 6, 5, 3, 2]
    scheduler = rounds(tasks=TASKS[:1], shrinking=Shrinking(rate=1.0))
    scheduler.observe(played_group(scheduler.next_plan(), [1.0] * 8))
    assert scheduler.next_plan().group_size == 2
    scheduler.observe(played_group(scheduler.next_plan(), [0.0, 1.0]))
    assert scheduler.next_plan().group_size == 8


def fail_all(scheduler: TaskRounds, plans: int, *, but: int = -1) -> Counter[int]:
    visits: Counter[int] = Counter()
    for _ in range(plans):
        plan = scheduler.next_plan()
        visits[plan.task.index] += 1
        scheduler.observe(played_group(plan, [float(plan.task.index == but)] * 2))
    return visits


def test_a_hopeless_task_comes_up_less_and_less_and_is_left_out() -> None:
    scheduler = rounds(cool_down=CoolDown(after=2, visits=3))
    visits = fail_all(scheduler, 200, but=0)
    assert {task: visits[task] for task in range(1, 5)} == dict.fromkeys(range(1, 5), 5)
    assert [scheduler.left_out(task) for task in TASKS] == [False, True, True, True, True]


def test_a_success_ends_the_cool_down() -> None:
    scheduler = rounds(tasks=TASKS[:1], cool_down=CoolDown(after=1, visits=1))
    for rewards in ([0.0], [1.0], [0.0], [1.0]):
        scheduler.observe(played_group(scheduler.next_plan(), rewards))
    assert not scheduler.left_out(TASKS[0])


def test_when_all_are_left_out_all_come_back() -> None:
    scheduler = rounds(cool_down=CoolDown(after=1, visits=0))
    visits = fail_all(scheduler, 60)
    assert set(visits) == set(range(5))
    assert max(visits.values()) - min(visits.values()) <= 1


def test_a_state_of_other_tasks_starts_a_round_afresh() -> None:
    one, other = rounds(), rounds(tasks=TASKS[:2])
    for _ in range(4):
        one.next_plan()
    other.load_state_dict(one.state_dict())
    assert {other.next_plan().task.index for _ in range(2)} == {0, 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: rounds(tasks=()),
        lambda: rounds(group_size=0),
        lambda: rounds(tasks=[Task(template=LONG, split=Split.HELD_OUT, index=0)]),
        lambda: Shrinking(above=1.0),
        lambda: Shrinking(least=1),
        lambda: CoolDown(after=0),
    ],
)
def test_what_cannot_work_is_refused(make) -> None:
    with pytest.raises(ConfigError):
        make()
