"""One method from a given policy: trained to a budget, measured on its way, resumable."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from cairn.app.run import TrainRequest, opened
from cairn.app.training import (
    Parts,
    build_demonstrations,
    build_evaluator,
    build_loop,
    collect_tracks,
    recording_runner,
)
from cairn.config.recipe import RunConfig
from cairn.data import ledger as ledgers
from cairn.data.checkpoint import Track
from cairn.data.ledger import Ledger, Quantity
from cairn.data.sample import Batch
from cairn.data.task import Purpose, Split
from cairn.evaluate.run import Evaluator
from cairn.loop.imitation import Curriculum
from cairn.loop.lessons import lessons_on
from cairn.loop.sync import SyncLoop, undisturbed
from cairn.ports import LearnerStep

_LEARNING = (Purpose.TRAIN, Purpose.PROBE, Purpose.REESTIMATE, Purpose.BASELINE)
_LATEST, _BEST, _STATE = "latest", "best", "race.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceBudget:
    """When a race ends, and how often it is measured."""

    steps: int  # actions executed while learning, probes and estimates included
    minutes: float  # of learning and of measuring
    updates: int
    every_steps: int  # between two measurements …
    every_updates: int  # … or so many updates, whichever comes first
    tries: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One measurement."""

    update: int
    steps: int
    samples: int
    restores: int
    minutes: float
    train_avg: float  # the limits are those of 95 % intervals, tasks being the units
    train_low: float
    train_high: float
    train_pass: float
    train_pass_low: float
    train_pass_high: float
    held_avg: float | None = None  # at the ends alone
    held_low: float | None = None
    held_high: float | None = None
    held_pass: float | None = None
    held_pass_low: float | None = None
    held_pass_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """How far it is."""

    round: int = 0
    update: int = 0  # rounds that only measured, or gave no gradient, have none
    seconds: float = 0.0
    marks: tuple[Mark, ...] = ()
    best: float = -1.0  # train Avg@k of the policy that is kept as the best
    scheduler: dict[str, object] = field(default_factory=dict[str, object])
    done: bool = False


_RACE = TypeAdapter(Race)


def finished(folder: Path) -> Race | None:
    """The race in a folder, where it was run to its end."""
    path = folder / _STATE
    if not path.exists():
        return None
    race = _RACE.validate_json(path.read_bytes())
    return race if race.done else None


def best_policy(folder: Path) -> Path:
    """The policy with the best train Avg@k of a race."""
    return folder / "checkpoints" / _BEST


async def run_race(
    config: RunConfig,
    folder: Path,
    budget: RaceBudget,
    *,
    start: Mark | None = None,
    imitates: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Race:
    """Train to the budget, or go on with what was begun in the folder. Cancelled, it can be run again.

    `start` is what the policy that it begins with was measured as, where that is known. A budget of no updates measures
    it. With `imitates` the experts' moves at the training tasks are cloned, and nothing is rolled out.
    """
    begun = (folder / "run.json").exists()
    request = TrainRequest(config=config, folder=folder, resume=begun, control=False, tensorboard=False)
    async with opened(request) as parts:
        racer = await _Racer.ready(config, parts, budget, imitates=imitates, progress=progress)
        if start is not None and not racer.race.marks:
            racer.keep(start)
        return await racer.run()


@dataclass(slots=True, kw_only=True)
class _Racer:
    parts: Parts
    budget: RaceBudget
    loop: SyncLoop
    evaluator: Evaluator
    lessons: Curriculum | None
    ways: Curriculum | None  # of experts through the training tasks, where these are imitated and nothing else is done
    rehearsal: int  # updates of imitation after each of reinforcement
    train_tasks: int  # of each template
    held_out_tasks: int
    progress: Callable[[str], None]
    race: Race = field(default_factory=Race)

    @classmethod
    async def ready(
        cls,
        config: RunConfig,
        parts: Parts,
        budget: RaceBudget,
        *,
        imitates: bool,
        progress: Callable[[str], None],
    ) -> "_Racer":
        progress("experts")
        tracks = await collect_tracks(config, parts)
        runner = recording_runner(config, parts, tracks=tracks)
        rehearsal = config.reinforcement.rehearsal
        racer = cls(
            parts=parts,
            budget=budget,
            loop=build_loop(config, parts, runner, tracks=tracks),
            evaluator=build_evaluator(config, parts.brain, runner),
            lessons=await build_demonstrations(config, parts, runner).curriculum() if rehearsal else None,
            ways=_ways(config, parts, tracks) if imitates else None,
            rehearsal=rehearsal,
            train_tasks=config.tracks.per_template,
            held_out_tasks=config.evaluation.per_template,
            progress=progress,
        )
        racer._resume()
        return racer

    async def run(self) -> Race:
        await self.loop.engine.update(self.loop.learner.version)
        if not self.race.marks:
            await self._measure(held_out=True)
            self._save(done=self._ended())
        while not self.race.done:
            await self._step()
            ended = self._ended()
            if ended or self._due():
                await self._measure(held_out=ended)
                self._save(done=ended)
        return self.race

    async def _step(self) -> None:
        clock, number = self.loop.clock, self.race.round
        begun = clock.now()
        if self.ways is not None:
            step = await self._imitate(self.ways.batch(number))
        else:
            first = number * self.rehearsal
            lessons = [self.lessons.batch(first + i) for i in range(self.rehearsal)] if self.lessons else []
            step = await self.loop.step(number, rehearsal=lessons)
        self.race = replace(
            self.race,
            round=number + 1,
            update=self.race.update + (step is not None),
            seconds=self.race.seconds + clock.now() - begun,
        )

    async def _imitate(self, lessons: Batch) -> LearnerStep:
        step = await undisturbed(asyncio.to_thread(self.loop.learner.imitate, lessons))
        answers = len(lessons.samples)
        self.parts.run.count(ledgers.of_update(used=(), idle=(), sequences=answers, samples=answers))
        await self.loop.engine.update(self.loop.learner.version)
        return step

    def _ended(self) -> bool:
        budget, race = self.budget, self.race
        spent = steps_of(self.parts.run.ledger)
        return spent >= budget.steps or race.seconds >= 60 * budget.minutes or race.update >= budget.updates

    def _due(self) -> bool:
        last = self.race.marks[-1]
        steps = steps_of(self.parts.run.ledger) - last.steps
        return steps >= self.budget.every_steps or self.race.update - last.update >= self.budget.every_updates

    async def _measure(self, *, held_out: bool) -> None:
        templates, tries = self.parts.templates, self.budget.tries
        own = await self.evaluator.run(
            templates, split=Split.TRAIN, per_template=self.train_tasks, tries=tries, greedy=False
        )
        ledger, solved = self.parts.run.ledger, own.pass_at(tries)
        mark = Mark(
            update=self.race.update,
            steps=steps_of(ledger),
            samples=int(ledger.total(Quantity.SEQUENCES_IN_UPDATES)),
            restores=int(ledger.total(Quantity.RESTORES)),
            minutes=self.race.seconds / 60,
            train_avg=own.success.mean,
            train_low=own.success.low,
            train_high=own.success.high,
            train_pass=solved.mean,
            train_pass_low=solved.low,
            train_pass_high=solved.high,
        )
        if held_out:
            other = await self.evaluator.run(
                templates, split=Split.HELD_OUT, per_template=self.held_out_tasks, tries=tries, greedy=False
            )
            success, solved = other.success, other.pass_at(tries)
            mark = replace(
                mark,
                held_avg=success.mean,
                held_low=success.low,
                held_high=success.high,
                held_pass=solved.mean,
                held_pass_low=solved.low,
                held_pass_high=solved.high,
            )
        self.keep(mark)
        self.progress(f"{mark.steps} steps, {mark.samples} samples: train Avg@{tries} {mark.train_avg:.3f}")

    def keep(self, mark: Mark) -> None:
        """What the present policy was measured as."""
        if mark.train_avg > self.race.best:
            self.loop.learner.save(self.parts.run.path / "checkpoints" / _BEST)
            self.race = replace(self.race, best=mark.train_avg)
        self.race = replace(self.race, marks=(*self.race.marks, mark))

    def _save(self, *, done: bool) -> None:
        self.loop.learner.save(self.parts.run.path / "checkpoints" / _LATEST)
        self.race = replace(self.race, done=done, scheduler=dict(self.loop.scheduler.state_dict()))
        path = self.parts.run.path / _STATE
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self.race)), encoding="utf-8")
        fresh.replace(path)

    def _resume(self) -> None:
        path = self.parts.run.path / _STATE
        if path.exists():
            self.race = _RACE.validate_json(path.read_bytes())
            self.loop.learner.load(self.parts.run.path / "checkpoints" / _LATEST)
            self.loop.scheduler.load_state_dict(self.race.scheduler)


def _ways(config: RunConfig, parts: Parts, tracks: Sequence[Track]) -> Curriculum:
    options = config.imitation
    return Curriculum(
        lessons_on(tracks, parts.brain.codec),
        batch_size=options.batch_size,
        answers=options.answers_per_turn,
        seed=config.seed,
    )


def steps_of(ledger: Ledger) -> int:
    """Actions executed while learning: in training, probes and estimates, and to judge answers."""
    lived = sum(ledger.total(Quantity.ENVIRONMENT_STEPS, purpose=purpose) for purpose in _LEARNING)
    return int(lived + ledger.total(Quantity.TRIED_STEPS))
