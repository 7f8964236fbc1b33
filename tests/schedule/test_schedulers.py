from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.ids import TemplateId
from cairn.data.task import Template
from cairn.errors import ConfigError
from cairn.schedule.plans import RootPlans
from cairn.schedule.round_robin import RoundRobin
from cairn.schedule.variance import SuccessVariance
from cairn.testing.groups import played_group
from cairn.testing.scheduler_contract import SCHEDULER_CONTRACT, Check, Make, play

TEMPLATES = tuple(Template(id=TemplateId(f"t/{'x' * n}"), max_turns=n) for n in range(1, 6))


def round_robin(*, templates=TEMPLATES, **options) -> RoundRobin:
    return RoundRobin(templates=templates, plans=RootPlans(**{"group_size": 4, "seed": 3, **options}))


def variance(*, templates=TEMPLATES, **options) -> SuccessVariance:
    return SuccessVariance(templates=templates, plans=RootPlans(group_size=4, seed=3), **options)


@pytest.mark.parametrize("check", SCHEDULER_CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("make", [round_robin, variance])
def test_a_scheduler_keeps_its_contract(make: Make, check: Check) -> None:
    check(make)


@given(st.integers(1, 30))
def test_round_robin_visits_templates_evenly_and_each_task_once(plans: int) -> None:
    asked = play(round_robin(), plans)
    visits = Counter(p.task.template.id for p in asked)
    assert max(visits.values()) - min(visits.get(t.id, 0) for t in TEMPLATES) <= 1
    assert len({p.task.id for p in asked}) == plans


def test_tasks_below_the_start_index_are_left_alone() -> None:
    assert min(p.task.index for p in play(round_robin(start_index=30), 20)) == 30


def test_indices_wrap_around_at_the_end_of_the_split() -> None:
    asked = play(round_robin(start_index=999_999, templates=TEMPLATES[:1]), 3)
    assert [p.task.index for p in asked] == [999_999] * 3


def test_turns_can_be_limited_below_the_templates_own() -> None:
    assert {p.depth for p in play(round_robin(max_turns=2), 10)} == {1, 2}


def test_other_seeds_give_other_orders() -> None:
    orders = {tuple(p.task.template.id for p in play(round_robin(seed=s), 10)) for s in range(5)}
    assert len(orders) == 5


def test_variance_prefers_what_is_solved_sometimes() -> None:
    scheduler = variance()
    solved = {TEMPLATES[0].id: [1.0] * 4, TEMPLATES[1].id: [1.0, 0.0, 1.0, 0.0]}
    for _ in range(300):
        plan = scheduler.next_plan()
        scheduler.observe(played_group(plan, solved.get(plan.task.template.id, [0.0] * 4)))
    visits = Counter(scheduler.next_plan().task.template.id for _ in range(400))
    assert visits[TEMPLATES[1].id] > 3 * max(visits[t.id] for t in TEMPLATES if t.id != TEMPLATES[1].id)
    assert all(visits[t.id] > 0 for t in TEMPLATES)


def test_an_estimate_moves_towards_what_was_observed() -> None:
    scheduler = variance(rate=0.5)
    plan = scheduler.next_plan()
    scheduler.observe(played_group(plan, [1.0] * 4))
    assert scheduler.success(plan.task.template.id) == 0.75
    scheduler.observe(played_group(plan, []))
    assert scheduler.success(plan.task.template.id) == 0.75


def test_a_state_may_know_other_templates() -> None:
    one, other = variance(templates=TEMPLATES[:2]), variance(templates=TEMPLATES[1:3])
    play(one, 20)
    other.load_state_dict(one.state_dict())
    assert other.success(TEMPLATES[1].id) == one.success(TEMPLATES[1].id)
    assert other.success(TEMPLATES[2].id) == 0.5


def test_a_group_of_an_unknown_template_is_ignored() -> None:
    one, other = variance(templates=TEMPLATES[:1]), variance(templates=TEMPLATES[1:2])
    other.observe(played_group(one.next_plan(), [1.0]))
    assert other.success(TEMPLATES[1].id) == 0.5


@pytest.mark.parametrize(
    "options", [{"templates": ()}, {"group_size": 0}, {"seed": -1}, {"start_index": 1_000_000}, {"start_index": -1}]
)
def test_round_robin_refuses_what_cannot_work(options) -> None:
    with pytest.raises(ConfigError):
        round_robin(**options)


@pytest.mark.parametrize("options", [{"templates": ()}, {"floor": 0.0}, {"rate": 0.0}, {"rate": 1.5}])
def test_variance_refuses_what_cannot_work(options) -> None:
    with pytest.raises(ConfigError):
        variance(**options)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"count": "3", "visits": {}, "success": {}},
        {"count": -1, "visits": {}, "success": {}},
        {"count": True, "visits": {}, "success": {}},
        {"count": 3, "visits": [], "success": {}},
        {"count": 3, "visits": {TEMPLATES[0].id: 1.5}, "success": {}},
        {"count": 3, "visits": {}, "success": {TEMPLATES[0].id: "high"}},
    ],
)
def test_a_broken_state_is_refused(state) -> None:
    with pytest.raises(ConfigError, match="scheduler state"):
        variance().load_state_dict(state)
