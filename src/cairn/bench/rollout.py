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
from cairn.config import RunConfig
from cairn.data.ids import GroupId, PolicyVersion
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import Completion, Prompt, Trajectory
from cairn.models.loading import configure_threads
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
    configure_threads(options.config.policy.threads)  # before torch comes in with the brain
    from cairn.app.brain import build_brain

    blobs = MemoryBlobs()
    brain = build_brain(options.config, blobs=blobs, saved=options.saved)
    counter = _Counter(brain.engine, keep=options.siblings)
    try:
        paces: list[Pace] = []
        for concurrent in options.concurrency:
            progress(f"{concurrent} concurrent episodes")
            paces.append(await _pace(concurrent, brain=brain, counter=counter, blobs=blobs, options=options))
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
    episodes = _episodes(environment, brain, counter)
    try:
        async with asyncio.TaskGroup() as tasks:  # browsers, tabs and weights warm up outside the measurement
            for _ in range(concurrent):
                tasks.create_task(episodes.run(*next(plans)))
        return await _measured(concurrent, episodes=episodes, counter=counter, plans=plans, seconds=options.seconds)
    finally:
        await environment.close()


class _Sibling(tuple[RolloutPlan, int]):
    __slots__ = ()


async def _measured(
    concurrent: int,
    *,
    episodes: EpisodeRunner,
    counter: _Counter,
    plans: Iterator[tuple[RolloutPlan, int]],
    seconds: float,
) -> Pace:
    clock = time.perf_counter
    played: list[tuple[Trajectory, float]] = []
    before, began = counter.answers, clock()

    async def player() -> None:
        while clock() - began < seconds:
            plan, sibling = next(plans)
            started = clock()
            trajectory = await episodes.run(plan, sibling=sibling)
            played.append((trajectory, clock() - started))

    async def watch() -> float:
        await asyncio.sleep(seconds)
        return (counter.answers - before) / (clock() - began)

    async with asyncio.TaskGroup() as tasks:
        rate = tasks.create_task(watch())
        for _ in range(concurrent):
            tasks.create_task(player())
    return pace(concurrent, played, turns_per_s=rate.result())
