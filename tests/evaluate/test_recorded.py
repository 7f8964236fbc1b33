"""Accuracy at recorded states: always the same ones, evenly spread, by what the expert did."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import Action, Back, Click, Point
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Purpose, Recorded, RolloutPlan, Split, Template
from cairn.data.trajectory import ScoredGroup
from cairn.evaluate.recorded import RecordedEvaluator, spread
from cairn.evaluate.report import EvaluationReport
from cairn.ports import Sampling
from cairn.testing.groups import played_group
from schedule.tracks import SEEN

PLACE: Action = Click(Point(0.5, 0.5))


def state(number: int, expert: Action = PLACE, *, task: int | None = None) -> RecordedState:
    of = recorded_task("t", number if task is None else task)
    return RecordedState(
        task=replace(of, split=Split.HELD_OUT),
        episode="way",
        step=number,
        source="made up",
        start=Recorded(goal=f"go {number}", observation=SEEN, expert=expert),
    )


class Policy:
    """Right wherever the expert goes back, and at every second other state; remembers what it was asked."""

    def __init__(self) -> None:
        self.plans: list[RolloutPlan] = []
        self.temperatures: list[float] = []

    async def play(self, plans: Sequence[RolloutPlan], sampling: Sampling) -> Sequence[ScoredGroup]:
        self.plans += plans
        self.temperatures.append(sampling.temperature)
        return [played_group(plan, [self._right(plan)] * plan.group_size) for plan in plans]

    def _right(self, plan: RolloutPlan) -> float:
        start = plan.start
        assert isinstance(start, Recorded)
        return 1.0 if start.expert == Back() or int(start.goal.split()[1]) % 2 == 0 else 0.0


async def examined(policy: Policy, states: Sequence[RecordedState], *, size: int, greedy: bool) -> EvaluationReport:
    def of(split: Split, template: Template) -> Sequence[RecordedState]:
        return [s for s in states if s.task.split is split and s.task.template == template]

    evaluator = RecordedEvaluator(play=policy.play, states=of, sampling=Sampling(temperature=0.7), seed=1)
    return await evaluator.run(
        [recorded_task("t", 0).template], split=Split.HELD_OUT, per_template=size, tries=3, greedy=greedy
    )


async def test_accuracy_is_told_by_what_the_expert_did() -> None:
    states = [*(state(n) for n in range(8)), state(8, Back()), state(9, Back())]
    report = await examined(Policy(), states, size=20, greedy=False)
    assert [(k.kind, k.states, k.accuracy.mean, k.reward) for k in report.kinds] == [
        ("back", 2, 1.0, 1.0),
        ("click", 8, 0.5, 0.5),
    ]
    assert report.success.mean == pytest.approx(0.6)
    assert report.reward == pytest.approx(0.6)
    assert report.episodes == 30


async def test_greedy_answers_are_asked_for_once_at_the_same_states() -> None:
    policy = Policy()
    states = [state(n) for n in range(9)]
    await examined(policy, states, size=4, greedy=False)
    await examined(policy, states, size=4, greedy=True)
    sampled, greedy = policy.plans[:4], policy.plans[4:]
    assert [plan.start for plan in sampled] == [plan.start for plan in greedy]
    assert {plan.group_size for plan in sampled} == {3}
    assert {(plan.group_size, plan.depth, plan.purpose) for plan in greedy} == {(1, 1, Purpose.EVALUATE)}
    assert policy.temperatures == [0.7, 0.0]
    assert len({plan.group_id for plan in sampled}) == 4


async def test_states_of_one_task_tell_less_than_states_of_many() -> None:
    apart = await examined(Policy(), [state(n, task=n) for n in range(12)], size=12, greedy=True)
    alike = await examined(Policy(), [state(n, task=n % 2) for n in range(12)], size=12, greedy=True)
    assert alike.success.mean == apart.success.mean
    assert alike.success.high - alike.success.low > apart.success.high - apart.success.low


@given(st.integers(0, 50), st.integers(1, 50))
def test_states_are_spread_evenly(there: int, size: int) -> None:
    numbers = [s.step for s in spread([state(n) for n in range(there)], size)]
    assert len(numbers) == min(there, size)
    gaps = {after - before for before, after in itertools.pairwise(numbers)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert len(set(numbers)) == len(numbers)
