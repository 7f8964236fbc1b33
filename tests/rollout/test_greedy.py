"""ReMax's baseline: a greedy rollout beside every group."""

from dataclasses import replace

import pytest

from cairn.data import ledger as ledgers
from cairn.data.ledger import Quantity
from cairn.data.sample import Aggregation, NoGradient
from cairn.data.task import Purpose, RolloutPlan
from cairn.rollout.estimators import beside_greedy, by_trajectory, not_beside_greedy
from cairn.rollout.greedy import with_greedy
from cairn.rollout.samples import Crediting, credit
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted_policy import replay
from rollout.stage import MINUS, PLUS, Company, plan_for

REMAX = Crediting(
    advantages=by_trajectory(lambda rewards: rewards),
    aggregation=Aggregation.SEQ_MEAN_TOKEN_SUM,
    tokens=beside_greedy(gamma=1.0),
    idle=not_beside_greedy,
)


def one_at_a_time(**more: object) -> Company:
    """A company whose episodes follow each other, so that scripted answers come in the order of plans."""
    return Company(concurrency=1, **more)  # pyright: ignore[reportArgumentType] - any of its fields


async def test_every_trained_group_has_the_reward_of_a_greedy_rollout_from_its_start() -> None:
    company = one_at_a_time(answers=replay(MINUS, MINUS, MINUS, PLUS))
    (found,) = await with_greedy(company.runner, [plan_for(depth=3)])
    assert (found.rewards.tolist(), found.greedy) == ([0.0], 1.0)
    assert company.engine.temperatures == [1.0] * 3 + [0.0] * 3


async def test_it_is_stored_and_counted_as_interactions_of_its_own() -> None:
    company = one_at_a_time()
    await with_greedy(company.runner, [plan_for(size=2, group="a"), plan_for(size=2, group="b")])
    purposes = {g.plan.group_id: (g.plan.purpose, len(g.members), g.greedy) for g in company.recorded}
    assert purposes == {
        "a": (Purpose.TRAIN, 2, None),
        "b": (Purpose.TRAIN, 2, None),
        "a/greedy": (Purpose.BASELINE, 1, None),
        "b/greedy": (Purpose.BASELINE, 1, None),
    }
    ledger = ledgers.of_groups(company.recorded)
    assert ledger.total(Quantity.ENVIRONMENT_STEPS, purpose=Purpose.BASELINE) == 6


async def test_what_nothing_is_learned_from_is_played_alone() -> None:
    company = one_at_a_time()
    plan: RolloutPlan = replace(plan_for(size=2), purpose=Purpose.REESTIMATE)
    (found,) = await with_greedy(company.runner, [plan])
    assert (found.greedy, len(company.recorded)) == (None, 1)


async def test_a_group_whose_greedy_rollout_was_lost_is_left_out_and_says_so() -> None:
    company = one_at_a_time(retries=0, faults=[Fault(call=Call.OPEN, session=1, error=ConnectionResetError("gone"))])
    (found,) = await with_greedy(company.runner, [plan_for()])
    assert found.greedy is None
    done = credit([found], REMAX)
    assert [dropped.why for dropped in done.dropped] == [NoGradient.NO_BASELINE]


@pytest.mark.parametrize(("greedy", "why"), [(1.0, NoGradient.ALL_SOLVED), (0.0, None), (None, NoGradient.NO_BASELINE)])
async def test_a_group_teaches_something_where_it_did_otherwise_than_the_greedy_rollout(
    greedy: float | None, why: NoGradient | None
) -> None:
    company = one_at_a_time()
    (won,) = await company.runner.round([plan_for(size=2)])
    assert not_beside_greedy(replace(won, greedy=greedy)) is why
    assert not_beside_greedy(replace(won, greedy=greedy, members=())) is NoGradient.TOO_SMALL
