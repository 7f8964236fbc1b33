"""A whole run of scripted parts, whose learner takes a set time for each update."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cairn.algo.advantages import leave_one_out
from cairn.data.ledger import Ledger
from cairn.data.sample import Aggregation, Batch
from cairn.data.task import RolloutPlan, Template
from cairn.data.trajectory import ScoredGroup
from cairn.evaluate.run import Evaluator
from cairn.loop.budget import Budget
from cairn.loop.course import Course, CourseOptions, Measuring
from cairn.loop.demonstrations import Demonstrations
from cairn.loop.experts import ExpertPlayer
from cairn.loop.sync import SyncLoop
from cairn.ports import LearnerStep, Sampling, TrajectoryStore
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.episode import EpisodeRunner, Limits
from cairn.rollout.estimators import by_trajectory
from cairn.rollout.group import GroupRunner, Judging, Note, Record, forget
from cairn.rollout.runner import RolloutRunner
from cairn.rollout.samples import Crediting
from cairn.schedule.plans import RootPlans
from cairn.schedule.round_robin import RoundRobin
from cairn.testing.faults import Fault
from cairn.testing.memory import MemoryEvents, MemoryStore
from cairn.testing.scripted import CHOOSE, COUNT, ScriptedEnvironment
from cairn.testing.scripted_policy import (
    Answers,
    ScriptedCodec,
    ScriptedEngine,
    ScriptedLearner,
    ScriptedReward,
    uniform,
)

TEMPLATES = (CHOOSE, COUNT)
QUIET = Measuring(held_out=0, train=0, tries=1, curve=0, curve_seconds=60.0)


class HandClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class SlowLearner(ScriptedLearner):
    """Takes `seconds` of the hand clock for each update, and says in `log` what it was asked."""

    def __init__(self, clock: HandClock, *, seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._seconds = seconds
        self.log: list[str] = []
        self.before: Callable[[], None] = lambda: None  # called when an update begins
        self.saving: Callable[[Path], None] = lambda path: None

    def imitate(self, batch: Batch) -> LearnerStep:
        self.before()
        self.log.append("imitate")
        self._clock.time += self._seconds
        return super().imitate(batch)

    def improve(self, batch: Batch) -> LearnerStep:
        self.log.append("improve")
        self._clock.time += self._seconds
        return super().improve(batch)

    def save(self, path: Path) -> None:
        self.saving(path)
        super().save(path)

    def load(self, path: Path) -> None:
        super().load(path)
        self.log.append(f"load {path.name}")


def options(
    *,
    imitation: Budget | None = None,
    reinforcement: Budget | None = None,
    control: bool = False,
    measuring: Measuring = QUIET,
    save_every: int = 100,
    rehearsal: int = 0,
) -> CourseOptions:
    return CourseOptions(
        imitation=imitation or updates(2),
        reinforcement=reinforcement or updates(2),
        control=control,
        measuring=measuring,
        save_every=save_every,
        rehearsal=rehearsal,
    )


def updates(count: int) -> Budget:
    return Budget(updates=count, minutes=None)


def minutes(count: float) -> Budget:
    return Budget(updates=None, minutes=count)


@dataclass(kw_only=True)
class Journey:
    """A course in `folder`, and everything that it touches."""

    folder: Path
    options: CourseOptions = field(default_factory=options)
    answers: Answers = field(default_factory=lambda: uniform(1, 2))
    faults: Sequence[Fault] = ()
    store: TrajectoryStore = field(default_factory=MemoryStore)
    record: Record | None = None  # default: the store alone
    note: Note = forget
    templates: Sequence[Template] = TEMPLATES
    update_seconds: float = 10.0
    demonstrations: int = 2
    retries: int = 2

    def __post_init__(self) -> None:
        self.environment = ScriptedEnvironment(faults=self.faults)
        self.engine = ScriptedEngine(self.answers)
        self.codec = ScriptedCodec()
        self.events = MemoryEvents()
        self.clock = HandClock()
        self.learner = SlowLearner(self.clock, seconds=self.update_seconds)
        self.counted: list[Ledger] = []
        self.evaluated: list[RolloutPlan] = []
        self.sampled: list[Sampling] = []
        self.runner = self._runner()
        self.scheduler = RoundRobin(
            templates=self.templates, plans=RootPlans(group_size=4, seed=3, start_index=self.demonstrations)
        )
        self.course = self._course()

    @property
    def groups(self) -> list[ScoredGroup]:
        return list(self.store.read())

    def _runner(self) -> RolloutRunner:
        episodes = EpisodeRunner(
            sessions=self.environment,
            engine=self.engine,
            codec=self.codec,
            sampling=Sampling(),
            limits=Limits(),
            clock=self.clock,
            events=self.events,
        )
        groups = GroupRunner(
            episodes=episodes,
            judging=Judging(reward=ScriptedReward()),
            breaker=CircuitBreaker(at_least=1000, window=1000),
            places=asyncio.Semaphore(8),
            events=self.events,
            retries=self.retries,
            note=self.note,
        )
        return RolloutRunner(groups=groups, record=self.record or self.store.append)

    async def _play(self, plans: Sequence[RolloutPlan], sampling: Sampling) -> Sequence[ScoredGroup]:
        self.evaluated += plans
        self.sampled.append(sampling)
        episodes = replace(self.runner.groups.episodes, sampling=sampling)
        return await replace(self.runner, groups=replace(self.runner.groups, episodes=episodes)).round(plans)

    def curriculum(self) -> Demonstrations:
        return Demonstrations(
            player=ExpertPlayer(runner=self.runner, store=self.store, codec=self.codec, events=self.events),
            templates=self.templates,
            without=(),
            per_template=self.demonstrations,
            batch_size=2,
            answers=1,
            seed=3,
        )

    def _course(self) -> Course:
        loop = SyncLoop(
            scheduler=self.scheduler,
            runner=self.runner,
            crediting=Crediting(advantages=by_trajectory(leave_one_out), aggregation=Aggregation.TRAJECTORY_MEAN),
            learner=self.learner,
            engine=self.engine,
            clock=self.clock,
            events=self.events,
            count=self.counted.append,
            groups_per_update=2,
        )
        return Course(
            loop=loop,
            evaluator=Evaluator(play=self._play, sampling=Sampling(), seed=3, max_turns=None),
            templates=self.templates,
            demonstrate=self.curriculum().curriculum,
            options=self.options,
            folder=self.folder,
        )
