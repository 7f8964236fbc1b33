import asyncio
import math
from dataclasses import replace

import pytest

from cairn.data.trajectory import LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory, Trajectory
from cairn.errors import CircuitOpenError, ConfigError, InvariantError
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.episode import Limits
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted import CHOOSE
from cairn.testing.scripted_policy import NONSENSE, replay, uniform
from rollout.stage import MINUS, PLUS, Company, plan_for

GONE = ConnectionResetError("gone")


def outcomes(group: ScoredGroup) -> list[Outcome]:
    return [m.outcome for m in group.members]


def losses(group: ScoredGroup) -> list[tuple[int, int, Outcome]]:
    return [(m.trajectory.sibling, m.trajectory.attempt, m.outcome) for m in group.lost]


async def test_every_sibling_is_played_and_judged() -> None:
    company = Company()
    group = await company.groups.run(plan_for(size=3))
    assert outcomes(group) == [Outcome.SUCCESS] * 3
    assert group.rewards.tolist() == [1.0] * 3
    assert group.lost == ()
    assert company.environment.live == 0


async def test_a_task_that_ended_unsolved_is_a_failure() -> None:
    group = await Company(answers=replay(2)).groups.run(plan_for(CHOOSE, index=0))
    assert (outcomes(group), group.rewards.tolist()) == ([Outcome.FAILURE], [0.0])


async def test_a_trajectory_cut_by_turns_is_judged_where_it_was_cut() -> None:
    group = await Company(answers=replay(MINUS)).groups.run(plan_for(depth=2))
    assert (outcomes(group), group.rewards.tolist()) == ([Outcome.TRUNCATED], [0.0])


async def test_what_is_solved_at_the_cut_is_solved() -> None:
    class Lenient:
        async def score(self, trajectory: Trajectory) -> float:
            return 1.0

    company = Company(answers=replay(MINUS))
    judging = type(company.groups.judging)(reward=Lenient())
    judged = await judging.score(await company.episodes.run(plan_for(depth=2), sibling=0))
    assert (judged.outcome, judged.reward, judged.terms) == (Outcome.SUCCESS, 1.0, ())


async def test_a_format_error_costs_the_penalty_and_is_no_success() -> None:
    company = Company(answers=replay(NONSENSE), format_penalty=0.5)
    group = await company.groups.run(plan_for(size=2))
    assert (outcomes(group), group.rewards.tolist()) == ([Outcome.FORMAT_ERROR] * 2, [-0.5, -0.5])
    assert company.reward.calls == 0


async def test_a_trajectory_lost_outside_is_played_again_on_another_session() -> None:
    company = Company(faults=[Fault(call=Call.ACT, session=1, nth=1, error=GONE)])
    group = await company.groups.run(plan_for(size=2))
    assert outcomes(group) == [Outcome.SUCCESS] * 2
    assert losses(group) == [(1, 0, Outcome.INFRASTRUCTURE_ERROR)]
    assert [m.trajectory.attempt for m in group.members] == [0, 1]
    assert len(company.environment.opened) == 3
    assert company.events.kinds() == ["infrastructure_error"]


async def test_every_trajectory_is_noted_the_moment_it_is_over() -> None:
    company = Company(concurrency=1, faults=[Fault(call=Call.ACT, session=1, nth=0, error=GONE)])
    noted: list[tuple[float, int, Outcome]] = []

    def note(result: ScoredTrajectory | LostTrajectory) -> None:
        noted.append((len(company.environment.opened), result.trajectory.sibling, result.outcome))

    await replace(company.groups, note=note).run(plan_for(size=2))
    infrastructure = Outcome.INFRASTRUCTURE_ERROR
    assert noted == [(1, 0, Outcome.SUCCESS), (2, 1, infrastructure), (3, 1, Outcome.SUCCESS)]


async def test_a_retry_samples_under_seeds_of_its_own() -> None:
    company = Company(faults=[Fault(call=Call.ACT, session=0, nth=0, error=GONE)])
    await company.groups.run(plan_for(size=1))
    assert len(set(company.engine.seeds)) == len(company.engine.seeds) == 4


async def test_a_group_shrinks_when_retries_run_out_and_is_never_padded() -> None:
    faults = [Fault(call=Call.OBSERVE, session=s, error=GONE) for s in (1, 3, 4)]
    group = await Company(faults=faults).groups.run(plan_for(size=3))
    assert [m.trajectory.sibling for m in group.members] == [0, 2]
    assert [m[:2] for m in losses(group)] == [(1, 0), (1, 1), (1, 2)]
    assert group.rewards.tolist() == [1.0, 1.0]


async def test_a_group_that_lost_everything_is_empty_and_its_losses_recorded() -> None:
    group = await Company(faults=[Fault(call=Call.OPEN, error=GONE)], retries=1).groups.run(plan_for(size=2))
    assert group.members == ()
    assert len(group.lost) == 4


async def test_a_judge_that_fails_once_is_asked_again_and_the_trajectory_is_not_replayed() -> None:
    company = Company(faults=[Fault(call=Call.SCORE, nth=0, error=GONE)])
    group = await company.groups.run(plan_for())
    assert (outcomes(group), group.lost) == ([Outcome.SUCCESS], ())
    assert (company.reward.calls, len(company.environment.opened)) == (2, 1)


@pytest.mark.parametrize("fault", [Fault(call=Call.SCORE, error=GONE), Fault(call=Call.SCORE, delay=math.inf)])
async def test_a_judge_that_goes_on_failing_is_a_verifier_error(fault: Fault) -> None:
    company = Company(faults=[fault], judge_retries=1)
    group = await company.groups.run(plan_for())
    assert (group.members, losses(group)) == ((), [(0, 0, Outcome.VERIFIER_ERROR)])
    assert "judge g, sibling 0" in group.lost[0].reason
    assert (company.reward.calls, len(company.environment.opened)) == (2, 1)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
async def test_a_reward_that_is_no_number_is_a_verifier_error(reward: float) -> None:
    class Broken:
        async def score(self, trajectory: Trajectory) -> float:
            return reward

    company = Company()
    groups = type(company.groups)(
        episodes=company.episodes,
        judging=type(company.groups.judging)(reward=Broken(), retries=0),
        breaker=company.breaker,
        places=asyncio.Semaphore(1),
        events=company.events,
    )
    group = await groups.run(plan_for())
    assert losses(group) == [(0, 0, Outcome.VERIFIER_ERROR)]


async def test_no_more_episodes_run_at_once_than_there_are_places() -> None:
    company = Company(concurrency=3, faults=[Fault(call=Call.ACT, delay=1.0)])
    await company.groups.run(plan_for(size=7))
    assert company.environment.peak == 3


async def test_two_runs_of_one_plan_are_equal() -> None:
    async def rewards() -> list[float]:
        group = await Company(answers=uniform(PLUS, MINUS)).groups.run(plan_for(size=6))
        return group.rewards.tolist()

    assert await rewards() == await rewards()


async def test_a_cancelled_group_hands_over_what_was_played() -> None:
    company = Company(concurrency=1, faults=[Fault(call=Call.ACT, delay=1.0)])
    abandoned: list[ScoredGroup] = []
    task = asyncio.create_task(company.groups.run(plan_for(size=3), abandoned=abandoned.append))
    await asyncio.sleep(4.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.trajectory.sibling for m in abandoned[0].members] == [0]
    assert losses(abandoned[0]) == [(1, 0, Outcome.CANCELLED)]
    assert len(abandoned[0].lost[0].trajectory.turns) == 2
    assert company.environment.live == 0


async def test_a_trajectory_cancelled_while_it_is_judged_is_recorded() -> None:
    company = Company(faults=[Fault(call=Call.SCORE, delay=60.0)])
    abandoned: list[ScoredGroup] = []
    task = asyncio.create_task(company.groups.run(plan_for(), abandoned=abandoned.append))
    await asyncio.sleep(5.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert losses(abandoned[0]) == [(0, 0, Outcome.CANCELLED)]
    assert abandoned[0].lost[0].reason == "cancelled before it was judged"


async def test_a_group_cancelled_before_it_began_hands_over_nothing() -> None:
    company = Company(concurrency=1)
    abandoned: list[ScoredGroup] = []
    async with company.groups.places:
        task = asyncio.create_task(company.groups.run(plan_for(size=2), abandoned=abandoned.append))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert abandoned == []


async def test_the_circuit_opens_when_too_many_are_lost_and_stops_the_others() -> None:
    company = Company(
        faults=[Fault(call=Call.OBSERVE, error=GONE)],
        breaker=CircuitBreaker(share=0.5, window=8, at_least=4),
        concurrency=2,
    )
    abandoned: list[ScoredGroup] = []
    with pytest.raises(CircuitOpenError, match=r"4 of the last 4 .* observe, turn 0: ConnectionResetError: gone"):
        await company.groups.run(plan_for(size=8), abandoned=abandoned.append)
    assert company.environment.live == 0
    assert len(abandoned[0].lost) >= 4


async def test_a_dead_judge_opens_the_circuit_too() -> None:
    company = Company(
        faults=[Fault(call=Call.SCORE, error=GONE)], breaker=CircuitBreaker(share=1.0, window=4, at_least=3)
    )
    with pytest.raises(CircuitOpenError, match="judge"):
        await company.groups.run(plan_for(size=4))


async def test_a_bug_of_our_own_comes_out_as_itself() -> None:
    company = Company(faults=[Fault(call=Call.ACT, session=1, error=InvariantError("ours"))])
    with pytest.raises(InvariantError, match="ours"):
        await company.groups.run(plan_for(size=3))
    assert company.environment.live == 0


def test_the_breaker_forgets_what_left_the_window() -> None:
    breaker = CircuitBreaker(share=0.5, window=4, at_least=4)
    for _ in range(5):
        breaker.kept()
        breaker.kept()
        breaker.kept()
        breaker.lost("x")


def test_the_breaker_waits_for_enough_trajectories() -> None:
    breaker = CircuitBreaker(share=0.5, window=10, at_least=3)
    breaker.lost("x")
    breaker.lost("x")
    with pytest.raises(CircuitOpenError, match=r"3 of the last 3 .* \(the run stops at 50%\); the last one: y"):
        breaker.lost("y")


@pytest.mark.parametrize("options", [{"share": 0.0}, {"share": 1.5}, {"window": 0}, {"at_least": 0}])
def test_a_breaker_that_cannot_work_is_refused(options) -> None:
    with pytest.raises(ConfigError):
        CircuitBreaker(**options)


async def test_the_wall_limit_of_an_episode_counts_as_a_loss() -> None:
    company = Company(
        faults=[Fault(call=Call.OBSERVE, session=0, delay=math.inf)], limits=Limits(episode_seconds=5.0), retries=1
    )
    group = await company.groups.run(plan_for())
    assert (outcomes(group), losses(group)) == ([Outcome.SUCCESS], [(0, 0, Outcome.INFRASTRUCTURE_ERROR)])
