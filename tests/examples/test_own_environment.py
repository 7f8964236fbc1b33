"""The example of the documentation does what the documentation says of it."""

import asyncio
from pathlib import Path

import own_environment
from own_environment import FewClicks, NumberEnvironment

from cairn.data.ids import GroupId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task
from cairn.data.trajectory import Outcome, ScoredGroup
from cairn.ports import Environment, Reward, Sampling
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.clock import LoopClock
from cairn.rollout.episode import EpisodeRunner, Limits
from cairn.rollout.group import GroupRunner, Judging
from cairn.testing.environment_check import check_environment
from cairn.testing.environment_report import Verdict
from cairn.testing.memory import MemoryEvents
from cairn.testing.scripted_policy import Answers, ScriptedCodec, ScriptedEngine, replay

ENVIRONMENT: Environment = NumberEnvironment()
REWARD: Reward = FewClicks()


def test_it_takes_at_most_sixty_lines() -> None:
    assert len(Path(own_environment.__file__).read_text(encoding="utf-8").splitlines()) <= 60


async def test_it_conforms() -> None:
    report = await check_environment(NumberEnvironment())
    assert report.ok
    assert report.count(Verdict.WARN) == 0


async def _rollout(answers: Answers, *, index: int) -> ScoredGroup:
    events = MemoryEvents()
    episodes = EpisodeRunner(
        sessions=NumberEnvironment(),
        engine=ScriptedEngine(answers),
        codec=ScriptedCodec(),
        sampling=Sampling(),
        limits=Limits(),
        clock=LoopClock(),
        events=events,
    )
    groups = GroupRunner(
        episodes=episodes,
        judging=Judging(reward=FewClicks()),
        breaker=CircuitBreaker(),
        places=asyncio.Semaphore(1),
        events=events,
    )
    template = ENVIRONMENT.templates[0]
    plan = RolloutPlan(
        group_id=GroupId("g"),
        task=Task(template=template, split=Split.TRAIN, index=index),
        start=Root(),
        group_size=1,
        depth=template.max_turns,
        purpose=Purpose.TRAIN,
        seed=0,
    )
    return await groups.run(plan)


async def test_a_rollout_that_reaches_the_number_is_worth_one() -> None:
    group = await _rollout(replay(2, 1), index=3)  # make it 4: +3, +1
    assert [(m.outcome, m.reward) for m in group.members] == [(Outcome.SUCCESS, 1.0)]


async def test_a_rollout_that_misses_it_costs_its_clicks() -> None:
    group = await _rollout(replay(2, 2), index=3)
    assert [(m.outcome, m.reward) for m in group.members] == [(Outcome.FAILURE, -0.2)]
