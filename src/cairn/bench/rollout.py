"""How fast rollouts are with a policy in the loop, and where their time goes."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cairn.app.environments import build_environment, choose_templates, require_browser
from cairn.bench.prefill import Prefill, measure_prefill
from cairn.config.recipe import RunConfig
from cairn.data.ids import GroupId, PolicyVersion
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import Completion, Prompt, Trajectory
from cairn.errors import SessionError
from cairn.models.loading import configure_torch
from cairn.ports import BlobStore, Engine, Event, Sampling, SessionFactory
from cairn.rollout.clock import LoopClock
from cairn.rollout.episode import EpisodeRunner, Limits
from cairn.testing.memory import MemoryBlobs

if TYPE_CHECKING:
    from cairn.app.brain import Brain

_PAGES_PER_BROWSER = 8
_TURNS = 6  # of an episode at most: an untrained policy would use up whatever it is given
_TASKS = (
    "click-test-2", "click-dialog", "focus-text-2", "click-color",
    "click-button-sequence", "enter-text", "enter-password", "login-user",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBenchOptions:
    """What is measured, and for how long."""

    config: RunConfig = field(default_factory=RunConfig)  # its policy and environment; the policy is untrained …
    saved: Path | None = None  # … or the one in this directory
    concurrency: tuple[int, ...] = (1, 4, 16, 64)
    seconds: float = 8.0  # for each of them
    siblings: int = 8
    repetitions: int = 7  # of the comparison of prefills


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One number of concurrent episodes. The shares are of the episodes' wall time, and add up to 1."""

    concurrent: int
    turns_per_s: float
    episodes: int
    lost: int
    engine: float  # answers, waiting for other prompts' answers included
    environment: float  # observe, act, evidence
    opening: float  # page loads, and waiting for a place
    waiting: float  # the rest: closing, prompts and parsing, and the event loop's other work


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBench:
    """The result."""

    policy: str
    paces: tuple[Pace, ...]
    prefill: Prefill
    cpus: int


class _Counter:
    """An engine that counts its answers and keeps the first prompts that differ."""

    def __init__(self, engine: Engine, *, keep: int) -> None:
        self._engine = engine
        self._keep = keep
        self.answers = 0
        self.prompts: dict[tuple[bytes, tuple[str, ...]], Prompt] = {}

    async def generate(self, prompt: Prompt, *, sampling: Sampling, seed: int) -> Completion:
        answer = await self._engine.generate(prompt, sampling=sampling, seed=seed)
        self.answers += 1
        if len(self.prompts) < self._keep:
            self.prompts[prompt.token_ids.tobytes(), prompt.images] = prompt
        return answer

    async def update(self, version: PolicyVersion) -> None:
        await self._engine.update(version)

    async def close(self) -> None:
        await self._engine.close()


class _Silence:
    """Takes events, and forgets them."""

    def emit(self, event: Event) -> None:
        del event


async def bench_rollout(
    options: RolloutBenchOptions | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> RolloutBench:
    """Measure every number of concurrent episodes in turn, then prefills that are shared against none."""
    options = options or RolloutBenchOptions()
    require_browser(options.config.environment)
    configure_torch(threads=options.config.policy.threads)  # before torch comes in with the brain
    from cairn.app.brain import build_brain

    blobs = MemoryBlobs()
    brain = build_brain(options.config, blobs=blobs, saved=options.saved)
    counter = _Counter(brain.engine, keep=options.siblings)
    try:
        paces: list[Pace] = []
        for concurrent in options.concurrency:
            progress(f"{concurrent} concurrent episodes")
            paces.append(await _pace(concurrent, brain=brain, counter=counter, blobs=blobs, options=options))
        if not counter.prompts:
            raise SessionError("no episode could be played, so there is nothing to measure: see `cairn doctor`")
        progress("shared prefill")
        prefill = await measure_prefill(
            brain.engine,
            list(counter.prompts.values()),
            blobs=blobs,
            sampling=brain.sampling,
            siblings=options.siblings,
            repetitions=options.repetitions,
        )
    finally:
        await brain.engine.close()
    return RolloutBench(
        policy=str(options.saved) if options.saved else f"{options.config.policy.model}, untrained",
        paces=tuple(paces),
        prefill=prefill,
        cpus=os.cpu_count() or 1,
    )


async def _pace(
    concurrent: int, *, brain: "Brain", counter: _Counter, blobs: BlobStore, options: RolloutBenchOptions
) -> Pace:
    wanted = options.config.environment
    browsers = max(min(wanted.browsers, concurrent), -(-concurrent // _PAGES_PER_BROWSER))
    room = wanted.model_copy(update={"browsers": browsers, "pages_per_browser": -(-concurrent // browsers)})
    environment = build_environment(room, blobs=blobs)
    names = wanted.templates or (_TASKS if wanted.name == "miniwob" else ())
    plans = _plans(choose_templates(environment, names), size=min(options.siblings, concurrent))
    played = _Played(episodes=_episodes(environment, brain, counter), plans=plans)
    try:
        rate = await _steady(concurrent, played, counter=counter, seconds=options.seconds)
        return pace(concurrent, played.results, turns_per_s=rate)
    finally:
        await environment.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """Plays siblings in the order of the plans, and keeps each trajectory with its wall time."""

    episodes: EpisodeRunner
    plans: Iterator[tuple[RolloutPlan, int]]
    results: list[tuple[Trajectory, float]] = field(default_factory=list[tuple[Trajectory, float]])

    async def one(self) -> None:
        plan, sibling = next(self.plans)
        began = time.perf_counter()
        trajectory = await self.episodes.run(plan, sibling=sibling)
        self.results.append((trajectory, time.perf_counter() - began))


async def _steady(concurrent: int, played: _Played, *, counter: _Counter, seconds: float) -> float:
    """Answers per second, once every place has seen its first episodes; `played` keeps those that came later."""
    warm, over = asyncio.Event(), asyncio.Event()

    async def player() -> None:
        while not over.is_set():
            await played.one()
            if len(played.results) >= concurrent:
                warm.set()

    async def watch() -> float:
        await warm.wait()
        played.results.clear()
        before, began = counter.answers, time.perf_counter()
        await asyncio.sleep(seconds)
        rate = (counter.answers - before) / (time.perf_counter() - began)
        over.set()
        return rate

    async with asyncio.TaskGroup() as tasks:
        rate = tasks.create_task(watch())
        for _ in range(concurrent):
            tasks.create_task(player())
    return rate.result()


def pace(concurrent: int, played: Sequence[tuple[Trajectory, float]], *, turns_per_s: float) -> Pace:
    """Where the wall time of the episodes went."""
    wall = sum(seconds for _, seconds in played) or 1.0  # nothing ended in so short a time
    spent = [trajectory.seconds for trajectory, _ in played]
    engine, environment, opening = (
        sum(part) / wall
        for part in ([s.engine for s in spent], [s.environment for s in spent], [s.opening for s in spent])
    )
    return Pace(
        concurrent=concurrent,
        turns_per_s=turns_per_s,
        episodes=len(played),
        lost=sum(trajectory.error is not None for trajectory, _ in played),
        engine=engine,
        environment=environment,
        opening=opening,
        waiting=1 - engine - environment - opening,
    )


def _episodes(sessions: SessionFactory, brain: "Brain", engine: Engine) -> EpisodeRunner:
    return EpisodeRunner(
        sessions=sessions,
        engine=engine,
        codec=brain.codec,
        sampling=brain.sampling,
        limits=Limits(invalid_answers=_TURNS + 1),
        clock=LoopClock(),
        events=_Silence(),
    )


def _plans(templates: Sequence[Template], *, size: int) -> Iterator[tuple[RolloutPlan, int]]:
    """Every sibling of one group after the other, over the templates in turn."""
    for number in count():
        lap, place = divmod(number, len(templates))
        task = Task(template=templates[place], split=Split.TRAIN, index=lap)
        plan = RolloutPlan(
            group_id=GroupId(f"bench-{number}"),
            task=task,
            start=Root(),
            group_size=size,
            depth=min(_TURNS, task.template.max_turns),
            purpose=Purpose.PROBE,
            seed=number,
        )
        yield from ((plan, sibling) for sibling in range(size))


def rollout_table(bench: RolloutBench) -> Table:
    """One row for each number of concurrent episodes."""
    table = Table(title=f"rollouts with {bench.policy}, {bench.cpus} CPUs")
    for column in ("concurrent", "turns/s", "engine, %", "environment, %", "opening, %", "waiting, %", "lost"):
        table.add_column(column, justify="right")
    for one in bench.paces:
        shares = (f"{100 * share:.0f}" for share in (one.engine, one.environment, one.opening, one.waiting))
        table.add_row(str(one.concurrent), f"{one.turns_per_s:.1f}", *shares, str(one.lost))
    shared = bench.prefill
    table.caption = (
        f"{shared.prompts} prompts x {shared.siblings} siblings: {shared.shared:.0f} answers/s with prompts read once, "
        f"{shared.unshared:.0f} without ({shared.speedup:.1f}x, {shared.low:.1f}-{shared.high:.1f})"
    )
    return table


def rollout_json(bench: RolloutBench) -> str:
    """The result as one line."""
    return json.dumps(
        {
            "turns_per_s": {str(p.concurrent): round(p.turns_per_s, 1) for p in bench.paces},
            "shares": {
                str(p.concurrent): {
                    "engine": round(p.engine, 3),
                    "environment": round(p.environment, 3),
                    "opening": round(p.opening, 3),
                    "waiting": round(p.waiting, 3),
                }
                for p in bench.paces
            },
            "shared_prefill": asdict(bench.prefill),
            "lost": sum(p.lost for p in bench.paces),
            "policy": bench.policy,
            "cpus": bench.cpus,
        }
    )
