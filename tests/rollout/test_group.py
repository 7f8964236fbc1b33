import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from cairn.data.trajectory import LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory, Term, Trajectory
from cairn.errors import CircuitOpenError, ConfigError, InvariantError, VerifierError
from cairn.ports import Verdict
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.episode import Limits
from cairn.rollout.group import GroupRunner
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


# ── a reward of several terms ─────────────────────────────────────────────────


@dataclass
class Turns:
    """A composition of the number of turns, and of a share of all members'; `silent`: it has nothing to say."""

    silent: bool = False
    solved: bool = False
    told: list[bool] = field(default_factory=list[bool])

    async def verdict(self, trajectory: Trajectory, *, solved: bool) -> Verdict | None:
        self.told.append(solved)
        if self.silent:
            return None
        return Verdict(solved=self.solved, terms=(Term(name="turns", weight=0.5, value=float(len(trajectory.turns))),))

    def together(self, members: Sequence[ScoredTrajectory]) -> tuple[ScoredTrajectory, ...]:
        shared = Term(name="shared", weight=1.0, value=float(len(members)))
        return tuple(replace(m, reward=m.reward + shared.worth, terms=(*m.terms, shared)) for m in members if m.terms)


def composed(company: Company, composition: Turns) -> GroupRunner:
    return replace(company.groups, judging=replace(company.groups.judging, composition=composition))


async def test_a_composition_gives_the_reward_and_says_what_is_solved() -> None:
    company = Company()
    turns = Turns()
    group = await composed(company, turns).run(plan_for(size=2))  # three turns each, solved
    assert turns.told == [True, True]
    assert group.rewards.tolist() == [3.5, 3.5]
    assert outcomes(group) == [Outcome.FAILURE] * 2
    assert [t.name for t in group.members[0].terms] == ["turns", "shared"]
    assert outcomes(await composed(Company(), Turns(solved=True)).run(plan_for())) == [Outcome.SUCCESS]


async def test_siblings_are_rewarded_together_once_all_are_over_and_noted_before() -> None:
    noted: list[float] = []

    def note(result: ScoredTrajectory | LostTrajectory) -> None:
        assert isinstance(result, ScoredTrajectory)
        noted.append(result.reward)

    company = Company(concurrency=1)
    group = await replace(composed(company, Turns()), note=note).run(plan_for(size=3))
    assert noted == [1.5] * 3
    assert group.rewards.tolist() == [4.5] * 3


async def test_a_member_that_was_lost_is_not_counted_among_siblings() -> None:
    company = Company(faults=[Fault(call=Call.ACT, session=s, error=GONE) for s in (1, 3)], retries=1)
    group = await composed(company, Turns()).run(plan_for(size=3))
    assert group.rewards.tolist() == [3.5, 3.5]


async def test_where_a_composition_has_nothing_to_say_the_reward_stands_alone() -> None:
    class Silent(Turns):
        def together(self, members: Sequence[ScoredTrajectory]) -> tuple[ScoredTrajectory, ...]:
            return tuple(members)

    group = await composed(Company(), Silent(silent=True)).run(plan_for(size=2))
    assert (outcomes(group), group.rewards.tolist()) == ([Outcome.SUCCESS] * 2, [1.0, 1.0])
    assert group.members[0].terms == ()


async def test_a_format_error_is_rewarded_by_terms_and_never_solved() -> None:
    turns = Turns(solved=True)
    group = await composed(Company(answers=replay(NONSENSE)), turns).run(plan_for(size=1))
    assert turns.told == [False]
    assert (outcomes(group), group.rewards.tolist()) == ([Outcome.FORMAT_ERROR], [1.5])


async def test_a_term_that_fails_is_asked_again_and_then_loses_the_verdict() -> None:
    @dataclass
    class Failing(Turns):
        failures: int = 1

        async def verdict(self, trajectory: Trajectory, *, solved: bool) -> Verdict | None:
            if len(self.told) < self.failures:
                self.told.append(solved)
                raise VerifierError("down")
            return await Turns.verdict(self, trajectory, solved=solved)

    assert len((await composed(Company(judge_retries=1), Failing()).run(plan_for())).members) == 1
    group = await composed(Company(judge_retries=1), Failing(failures=2)).run(plan_for())
    assert losses(group) == [(0, 0, Outcome.VERIFIER_ERROR)]


async def test_terms_that_sum_to_no_number_are_a_verifier_error() -> None:
    class Broken(Turns):
        async def verdict(self, trajectory: Trajectory, *, solved: bool) -> Verdict | None:
            return Verdict(solved=False, terms=(Term(name="x", weight=1.0, value=math.nan),))

    group = await composed(Company(judge_retries=0), Broken()).run(plan_for())
    assert losses(group) == [(0, 0, Outcome.VERIFIER_ERROR)]
