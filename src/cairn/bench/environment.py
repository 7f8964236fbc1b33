"""How fast environments are: the same tasks and actions in Cairn, in miniwob's own environment and in BrowserGym.

A step that ends an episode is timed apart: neither miniwob's environment nor a rollout of Cairn's takes a picture then.
"""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cairn.bench.competitors import Competitor, Contender, Played, bench_python, play_elsewhere
from cairn.bench.environment_report import EnvBench, Run, summarise
from cairn.bench.memory import tree_pss_mb
from cairn.bench.traces import Trace, record
from cairn.data.ids import ImageId
from cairn.data.task import Root, Split, Task
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.errors import InvariantError
from cairn.rollout.unwrap import one_error


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvBenchOptions:
    """What is measured, and for how long."""

    tasks: tuple[str, ...] = (
        "click-button", "click-checkboxes", "click-option", "form-sequence-2", "enter-text", "login-user",
    )  # fmt: skip
    repetitions: int = 3
    seconds: float = 6.0  # for each measurement of Cairn and of Selenium; BrowserGym plays one round of the tasks
    sessions: tuple[int, ...] = (1, 2, 4, 8, 16)
    browsers: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))
    against: tuple[Contender, ...] = (Contender.SELENIUM, Contender.BROWSERGYM)
    competing_sessions: tuple[int, ...] = (1, 2)  # workers of Selenium's at once
    python: Path | None = None  # of the competitors' virtual environment


class _Eye:
    """Takes screenshots as a store would, and forgets them."""

    def put(self, data: bytes) -> ImageId:
        return ImageId(hashlib.sha256(data).hexdigest())

    def get(self, image: ImageId) -> bytes:
        raise KeyError(image)


async def bench_environment(
    options: EnvBenchOptions | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> EnvBench:
    """Measure all contenders in turn, `repetitions` times over, so that they meet the same disturbances."""
    options = options or EnvBenchOptions()
    if options.against and options.python is None:
        bench_python()  # says at once what is missing
    progress("recording the experts' actions")
    traces = await _record(options)
    runs: list[Run] = []
    for repetition in range(1, options.repetitions + 1):
        for contender, sessions in _settings(options):
            progress(f"{contender}, {sessions} session(s), repetition {repetition} of {options.repetitions}")
            with one_error():
                runs.append(await _measure(contender, sessions, traces=traces, options=options))
    return summarise(runs)


def _settings(options: EnvBenchOptions) -> list[tuple[Contender, int]]:
    """Cairn with one session stands between its competitors; the rest of the sessions follow."""
    first = [(Contender.CAIRN, 1)]  # what all others are compared with
    others = [
        (contender, sessions)
        for contender in options.against
        for sessions in (options.competing_sessions if contender is Contender.SELENIUM else (1,))
    ]
    return first + others + [(Contender.CAIRN, n) for n in options.sessions if n != 1]


def _environment(options: EnvBenchOptions, sessions: int) -> MiniwobEnvironment:
    browsers = min(options.browsers, sessions)
    limits = PoolLimits(browsers=browsers, pages_per_browser=-(-sessions // browsers))
    named = os.environ.get("CAIRN_BROWSER")
    executable = Path(named) if named else None
    return MiniwobEnvironment(blobs=_Eye(), options=MiniwobOptions(limits=limits, executable=executable))


async def _record(options: EnvBenchOptions) -> tuple[Trace, ...]:
    environment = _environment(options, 1)
    try:
        templates = {template.id.partition("/")[2]: template for template in environment.templates}
        return tuple(
            [
                await record(environment, Task(template=templates[name], split=Split.HELD_OUT, index=0))
                for name in options.tasks
            ]
        )
    finally:
        await environment.close()


async def _measure(contender: Contender, sessions: int, *, traces: Sequence[Trace], options: EnvBenchOptions) -> Run:
    if contender is Contender.CAIRN:
        return await _measure_ours(sessions, traces=traces, options=options)
    return await _measure_theirs(contender, sessions, traces=traces, options=options)


# ── Cairn ─────────────────────────────────────────────────────────────────────


async def _measure_ours(sessions: int, *, traces: Sequence[Trace], options: EnvBenchOptions) -> Run:
    environment = _environment(options, sessions)
    played: list[_Timed] = []
    try:
        async with asyncio.TaskGroup() as group:  # browsers and tabs start outside the measurement
            for _ in range(sessions):
                group.create_task(_episode(environment, traces[0]))
        before = _cpu([os.getpid()])
        begun = time.perf_counter()

        async def rounds(offset: int) -> None:
            turn = offset
            while time.perf_counter() - begun < options.seconds or turn % len(traces) != offset % len(traces):
                played.append(await _episode(environment, traces[turn % len(traces)]))
                turn += 1

        async with asyncio.TaskGroup() as group:
            for offset in range(sessions):
                group.create_task(rounds(offset))
        wall = time.perf_counter() - begun
        cpu = _cpu([os.getpid()]) - before
        memory = tree_pss_mb(os.getpid(), itself=False)
    finally:
        await environment.close()
    return Run(
        contender=Contender.CAIRN,
        sessions=sessions,
        wall=wall,
        resets=tuple(episode.reset for episode in played),
        steps=tuple(second for episode in played for second in episode.steps),
        ends=tuple(episode.end for episode in played),
        pss_mb=memory,
        cpu=cpu,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """One episode, in seconds."""

    reset: float
    steps: tuple[float, ...]
    end: float


async def _episode(environment: MiniwobEnvironment, trace: Trace) -> _Timed:
    begun = time.perf_counter()
    session = await environment.open(trace.task, start=Root())
    try:
        await session.observe()
        reset = time.perf_counter() - begun
        steps: list[float] = []
        for action in trace.actions:
            before = time.perf_counter()
            if (await session.act(action)).done:
                await session.evidence()
                return _Timed(reset=reset, steps=tuple(steps), end=time.perf_counter() - before)
            await session.observe()
            steps.append(time.perf_counter() - before)
        raise InvariantError(f"{trace.task.id}: the recorded actions did not end the episode")
    finally:
        await session.close()


# ── the others ────────────────────────────────────────────────────────────────


async def _measure_theirs(
    contender: Contender, sessions: int, *, traces: Sequence[Trace], options: EnvBenchOptions
) -> Run:
    workers: list[Competitor] = []
    seconds = 0.0 if contender is Contender.BROWSERGYM else options.seconds
    episodes: list[Played] = []
    busy: list[float] = []
    used: list[float] = []

    async def rounds(worker: Competitor) -> None:
        for trace in traces:
            if contender is Contender.SELENIUM:  # a change of the task starts a browser, which is not counted
                await worker.open(trace.task.template.id.partition("/")[2], trace.task.seed)
            before, spent = _cpu([worker.pid]), 0.0
            while spent == 0.0 or spent < seconds / len(traces):
                played = await play_elsewhere(worker, trace)
                if not played.done:
                    raise InvariantError(f"{trace.task.id}: the recorded actions end no episode in {contender}")
                episodes.append(played)
                spent += played.reset_seconds + sum(played.step_seconds)
            busy.append(spent)
            used.append(_cpu([worker.pid]) - before)

    try:
        while len(workers) < sessions:
            workers.append(await Competitor.start(contender, python=options.python))
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(rounds(worker))
        memory = sum(tree_pss_mb(worker.pid, itself=False) for worker in workers)
    finally:
        for worker in workers:
            await worker.close()
    return Run(
        contender=contender,
        sessions=sessions,
        wall=sum(busy) / sessions,
        resets=tuple(played.reset_seconds for played in episodes),
        steps=tuple(second for played in episodes for second in played.step_seconds[:-1]),
        ends=tuple(played.step_seconds[-1] for played in episodes),
        pss_mb=memory,
        cpu=sum(used),
    )


def _tree(pid: int) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """A process, and its descendants."""
    try:
        root = psutil.Process(pid)
        return [root], root.children(recursive=True)
    except psutil.Error:
        return [], []


def _cpu(pids: Sequence[int]) -> float:
    """Seconds that the processes and their descendants have used, those that have ended included."""
    total = 0.0
    for pid in pids:
        roots, children = _tree(pid)
        for process in (*roots, *children):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
                if process in roots:
                    total += times.children_user + times.children_system
    return total
