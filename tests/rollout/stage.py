"""A stage for tests of rollouts: scripted parts, put together."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from cairn.data.ids import GroupId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Start, Task, Template
from cairn.data.trajectory import ScoredGroup
from cairn.ports import Sampling
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.clock import LoopClock
from cairn.rollout.episode import EpisodeRunner, Limits
from cairn.rollout.group import GroupRunner, Judging
from cairn.rollout.runner import RolloutRunner
from cairn.testing.faults import Fault
from cairn.testing.memory import MemoryEvents
from cairn.testing.scripted import COUNT, ScriptedEnvironment
from cairn.testing.scripted_policy import Answers, ScriptedCodec, ScriptedEngine, ScriptedReward, replay

PLUS, MINUS = 1, 2
TO_THREE = 2  # index of the counting task whose goal is "count to 3"


def plan_for(
    template: Template = COUNT,
    *,
    index: int = TO_THREE,
    size: int = 1,
    depth: int = 6,
    start: Start | None = None,
    group: str = "g",
) -> RolloutPlan:
    return RolloutPlan(
        group_id=GroupId(group),
        task=Task(template=template, split=Split.TRAIN, index=index),
        start=start or Root(),
        group_size=size,
        depth=depth,
        purpose=Purpose.TRAIN,
        seed=7,
    )


@dataclass(kw_only=True)
class Stage:
    """Scripted parts and the runner over them."""

    answers: Answers = field(default_factory=lambda: replay(PLUS))
    faults: Sequence[Fault] = ()
    limits: Limits = field(default_factory=Limits)
    codec: ScriptedCodec = field(default_factory=ScriptedCodec)
    capacity: int = 8

    def __post_init__(self) -> None:
        self.environment = ScriptedEnvironment(capacity=self.capacity, faults=self.faults)
        self.engine = ScriptedEngine(self.answers, faults=self.faults)
        self.events = MemoryEvents()
        self.episodes = EpisodeRunner(
            sessions=self.environment,
            engine=self.engine,
            codec=self.codec,
            sampling=Sampling(),
            limits=self.limits,
            clock=LoopClock(),
            events=self.events,
        )


@dataclass(kw_only=True)
class Company(Stage):
    """A stage with a judge and a circuit breaker: plays whole groups."""

    retries: int = 2
    judge_retries: int = 2
    format_penalty: float = 0.0
    concurrency: int = 8
    breaker: CircuitBreaker = field(default_factory=lambda: CircuitBreaker(at_least=1000, window=1000))

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        self.reward = ScriptedReward(faults=self.faults)
        self.recorded: list[ScoredGroup] = []
        self.groups = GroupRunner(
            episodes=self.episodes,
            judging=Judging(reward=self.reward, format_penalty=self.format_penalty, retries=self.judge_retries),
            breaker=self.breaker,
            places=asyncio.Semaphore(self.concurrency),
            events=self.events,
            retries=self.retries,
        )
        self.runner = RolloutRunner(groups=self.groups, record=self.recorded.append)
