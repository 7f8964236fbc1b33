import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from cairn.data.task import Purpose, RolloutPlan
from cairn.data.trajectory import Outcome, ScoredGroup
from cairn.errors import CircuitOpenError, ConfigError, SetupError
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.estimators import no_gradient
from cairn.rollout.runner import RolloutRunner
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted_policy import replay, uniform
from rollout.stage import MINUS, PLUS, Company, plan_for


def plans(*, size: int = 4) -> Callable[[], RolloutPlan]:
    numbers = count()

    def next_plan() -> RolloutPlan:
        number = next(numbers)
        return replace(plan_for(group=f"g{number}", size=size, depth=5), seed=number)

    return next_plan


async def play(company: Company, via: str) -> tuple[ScoredGroup, ...]:
    order = plans()
    if via == "collect":
        return await company.runner.collect(order, wanted=3, at_most=9)
    return await company.runner.round([order() for _ in range(3)])


async def test_a_round_returns_its_groups_in_the_order_of_their_plans() -> None:
    company = Company(faults=[Fault(call=Call.ACT, session=0, delay=9.0)])
    groups = await company.runner.round([plan_for(group=f"g{i}") for i in range(3)])
    assert [g.plan.group_id for g in groups] == ["g0", "g1", "g2"]
    assert [g.plan.group_id for g in company.recorded] == ["g1", "g2", "g0"]


async def test_collecting_replaces_groups_without_a_gradient() -> None:
    company = Company(answers=uniform(PLUS, MINUS))
    groups = await company.runner.collect(plans(size=2), wanted=3, at_most=50)
    informative = [g for g in groups if no_gradient(g) is None]
    assert len(informative) == 3
    assert len(groups) > 3
    assert len(company.recorded) == len(groups)


async def test_collecting_gives_up_at_the_bound() -> None:
    company = Company(answers=replay(PLUS))
    groups = await company.runner.collect(plans(), wanted=2, at_most=5)
    assert len(groups) == 5
    assert all(no_gradient(g) is not None for g in groups)


async def test_collecting_does_not_take_what_only_measures_for_a_gradient() -> None:
    order = plans()

    def next_plan() -> RolloutPlan:
        plan = order()
        return replace(plan, purpose=Purpose.REESTIMATE) if plan.seed % 2 else plan

    groups = await Company(answers=uniform(PLUS, MINUS)).runner.collect(next_plan, wanted=3, at_most=50)
    learned = [g for g in groups if g.plan.purpose is Purpose.TRAIN and no_gradient(g) is None]
    assert len(learned) == 3
    assert any(g.plan.purpose is Purpose.REESTIMATE and no_gradient(g) is None for g in groups)


@pytest.mark.parametrize(("wanted", "at_most"), [(0, 4), (5, 4)])
async def test_collecting_needs_a_sensible_order(wanted: int, at_most: int) -> None:
    with pytest.raises(ConfigError):
        await Company().runner.collect(plans(), wanted=wanted, at_most=at_most)


@pytest.mark.parametrize("via", ["round", "collect"])
async def test_a_cancelled_round_leaks_no_session_and_records_what_was_played(via: str) -> None:
    company = Company(faults=[Fault(call=Call.ACT, delay=1.0), Fault(call=Call.CLOSE, delay=2.0)], concurrency=5)
    task = asyncio.create_task(play(company, via))
    await asyncio.sleep(2.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert company.environment.live == 0
    assert len(company.environment.opened) == 5
    lost = [t for g in company.recorded for t in g.lost]
    assert [t.outcome for t in lost] == [Outcome.CANCELLED] * 5
    assert asyncio.get_running_loop().time() == pytest.approx(4.5)


@pytest.mark.parametrize("via", ["round", "collect"])
async def test_an_open_circuit_stops_the_round_with_one_error(via: str) -> None:
    company = Company(
        faults=[Fault(call=Call.OBSERVE, error=ConnectionResetError("gone"))],
        breaker=CircuitBreaker(share=0.5, window=8, at_least=8),
    )
    with pytest.raises(CircuitOpenError):
        await play(company, via)
    assert company.environment.live == 0
    assert sum(len(g.lost) for g in company.recorded) >= 8


async def test_a_full_disk_stops_the_round_with_one_error() -> None:
    company = Company()

    def full(group: ScoredGroup) -> None:
        raise SetupError("no space left")

    runner = RolloutRunner(groups=company.groups, record=full)
    with pytest.raises(SetupError, match="no space left"):
        await runner.round([plan_for(group=f"g{i}") for i in range(3)])
    assert company.environment.live == 0
