"""How fast environments are: the same tasks and actions in Cairn, in miniwob's own environment and in BrowserGym."""

import asyncio
import contextlib
import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from rich.table import Table

from cairn.bench.competitors import Competitor, Contender, bench_python, play_elsewhere
from cairn.bench.traces import Trace, record
from cairn.data.ids import ImageId
from cairn.data.task import Root, Split, Task
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.errors import InvariantError
from cairn.rollout.unwrap import one_error

_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvBenchOptions:
    """What is measured, and for how long."""

    tasks: tuple[str, ...] = (
        "click-button", "click-checkboxes", "click-tab-2", "enter-text", "focus-text-2", "login-user",
    )  # fmt: skip
    repetitions: int = 3
    seconds: float = 6.0  # for each measurement of Cairn and of Selenium; BrowserGym plays one round of the tasks
    sessions: tuple[int, ...] = (1, 2, 4, 8, 16)
    browsers: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))
    against: tuple[Contender, ...] = (Contender.SELENIUM, Contender.BROWSERGYM)
    competing_sessions: tuple[int, ...] = (1, 2)  # workers of Selenium's at once
    python: Path | None = None  # of the competitors' virtual environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement."""

    contender: Contender
    sessions: int
    wall: float
    resets: tuple[float, ...]  # seconds each, first observation included
    steps: tuple[float, ...]  # seconds each, screenshot included
    pss_mb: float  # of all browser and driver processes
    cpu: float  # seconds of all processes, Cairn's own and the workers' included, resets included

    @property
    def per_second(self) -> float:
        """Steps of all sessions per second of wall clock, resets included."""
        return len(self.steps) / self.wall

    @property
    def step_rate(self) -> float:
        """Steps per second that one session spends in steps."""
        return len(self.steps) / sum(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Medians over the repetitions of one setting; `low` and `high` are the extremes of `per_second`."""

    contender: str
    sessions: int
    per_second: float
    low: float
    high: float
    step_rate: float
    cpu_ms: float  # per step, resets included: what a loaded machine cannot distort
    step_ms: float
    step_ms_p95: float
    reset_ms: float
    pss_mb_per_session: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvBench:
    """The result. Ratios compare one session with one session, step by step, within the same repetition."""

    steps_per_s: float  # Cairn, one session, resets not counted
    best_per_s: float  # Cairn, at the best number of sessions, resets counted
    vs_selenium: float | None
    vs_browsergym: float | None
    speeds: tuple[Speed, ...]
    cpus: int


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
    first = [(Contender.CAIRN, 1)] if 1 in options.sessions else []
    others = [
        (contender, sessions)
        for contender in options.against
        for sessions in (options.competing_sessions if contender is Contender.SELENIUM else (1,))
    ]
    return first + others + [(Contender.CAIRN, n) for n in options.sessions if n != 1]


def _environment(options: EnvBenchOptions, sessions: int) -> MiniwobEnvironment:
    browsers = min(options.browsers, sessions)
    limits = PoolLimits(browsers=browsers, pages_per_browser=-(-sessions // browsers))
    return MiniwobEnvironment(blobs=_Eye(), options=MiniwobOptions(limits=limits))


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
    resets: list[float] = []
    steps: list[float] = []
    try:
        async with asyncio.TaskGroup() as group:  # browsers and tabs start outside the measurement
            for _ in range(sessions):
                group.create_task(_episode(environment, traces[0]))
        before = _cpu([os.getpid()])
        begun = time.perf_counter()

        async def rounds(offset: int) -> None:
            turn = offset
            while time.perf_counter() - begun < options.seconds or turn % len(traces) != offset % len(traces):
                reset, taken = await _episode(environment, traces[turn % len(traces)])
                resets.append(reset)
                steps.extend(taken)
                turn += 1

        async with asyncio.TaskGroup() as group:
            for offset in range(sessions):
                group.create_task(rounds(offset))
        wall = time.perf_counter() - begun
        cpu = _cpu([os.getpid()]) - before
        memory = _pss(os.getpid())
    finally:
        await environment.close()
    return Run(
        contender=Contender.CAIRN,
        sessions=sessions,
        wall=wall,
        resets=tuple(resets),
        steps=tuple(steps),
        pss_mb=memory,
        cpu=cpu,
    )


async def _episode(environment: MiniwobEnvironment, trace: Trace) -> tuple[float, tuple[float, ...]]:
    begun = time.perf_counter()
    session = await environment.open(trace.task, start=Root())
    try:
        await session.observe()
        reset = time.perf_counter() - begun
        steps: list[float] = []
        for action in trace.actions:
            before = time.perf_counter()
            await session.act(action)
            await session.observe()
            steps.append(time.perf_counter() - before)
        return reset, tuple(steps)
    finally:
        await session.close()


# ── the others ────────────────────────────────────────────────────────────────


async def _measure_theirs(
    contender: Contender, sessions: int, *, traces: Sequence[Trace], options: EnvBenchOptions
) -> Run:
    workers: list[Competitor] = []
    seconds = 0.0 if contender is Contender.BROWSERGYM else options.seconds
    resets: list[float] = []
    steps: list[float] = []
    busy: list[float] = []
    used: list[float] = []

    async def rounds(worker: Competitor) -> None:
        for trace in traces:
            if contender is Contender.SELENIUM:  # a change of the task starts a browser, which is not counted
                await worker.open(trace.task.template.id.partition("/")[2], trace.task.seed)
            before, spent = _cpu([worker.pid]), 0.0
            while spent == 0.0 or spent < seconds / len(traces):
                played = await play_elsewhere(worker, trace)
                resets.append(played.reset_seconds)
                steps.extend(played.step_seconds)
                spent += played.reset_seconds + sum(played.step_seconds)
            busy.append(spent)
            used.append(_cpu([worker.pid]) - before)

    try:
        while len(workers) < sessions:
            workers.append(await Competitor.start(contender, python=options.python))
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(rounds(worker))
        memory = sum(_pss(worker.pid) for worker in workers)
    finally:
        for worker in workers:
            await worker.close()
    return Run(
        contender=contender,
        sessions=sessions,
        wall=sum(busy) / sessions,
        resets=tuple(resets),
        steps=tuple(steps),
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


def _pss(pid: int) -> float:
    """Proportional memory of a process's descendants, in MB; shared pages are counted once."""
    total = 0
    for process in _tree(pid)[1]:
        with contextlib.suppress(psutil.Error):
            total += int(process.memory_full_info().pss)
    return total / _MEGABYTE


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


# ── the result ────────────────────────────────────────────────────────────────


def summarise(runs: Sequence[Run]) -> EnvBench:
    """Medians and ratios. Raises `InvariantError` without a run of Cairn's with one session."""
    settings = dict.fromkeys((run.contender, run.sessions) for run in runs)
    speeds = tuple(_speed([r for r in runs if (r.contender, r.sessions) == setting]) for setting in settings)
    alone = [run for run in runs if run.contender is Contender.CAIRN and run.sessions == 1]
    if not alone:
        raise InvariantError("one session of Cairn's is what the others are compared with")
    return EnvBench(
        steps_per_s=statistics.median(run.step_rate for run in alone),
        best_per_s=max(speed.per_second for speed in speeds if speed.contender == Contender.CAIRN),
        vs_selenium=_ratio(alone, [r for r in runs if r.contender is Contender.SELENIUM and r.sessions == 1]),
        vs_browsergym=_ratio(alone, [r for r in runs if r.contender is Contender.BROWSERGYM and r.sessions == 1]),
        speeds=speeds,
        cpus=os.cpu_count() or 1,
    )


def _ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> float | None:
    if not theirs:
        return None
    return statistics.median(a.step_rate / b.step_rate for a, b in zip(ours, theirs, strict=True))


def _speed(runs: Sequence[Run]) -> Speed:
    steps = sorted(second for run in runs for second in run.steps)
    rates = [run.per_second for run in runs]
    return Speed(
        contender=runs[0].contender.value,
        sessions=runs[0].sessions,
        per_second=statistics.median(rates),
        low=min(rates),
        high=max(rates),
        step_rate=statistics.median(run.step_rate for run in runs),
        cpu_ms=1000 * statistics.median(run.cpu / len(run.steps) for run in runs),
        step_ms=1000 * statistics.median(steps),
        step_ms_p95=1000 * steps[min(len(steps) - 1, int(0.95 * len(steps)))],
        reset_ms=1000 * statistics.median(second for run in runs for second in run.resets),
        pss_mb_per_session=statistics.median(run.pss_mb / run.sessions for run in runs),
    )


def env_table(bench: EnvBench) -> Table:
    """One row per setting."""
    table = Table(title=f"steps with screenshot, same tasks and actions, {bench.cpus} CPUs")
    for column in ("environment", "sessions", "steps/s with resets", "range", "steps/s", "step ms", "p95", "reset ms",
                   "CPU ms/step", "PSS MB/session"):  # fmt: skip
        table.add_column(column, justify="left" if column == "environment" else "right")
    for speed in bench.speeds:
        table.add_row(
            speed.contender,
            str(speed.sessions),
            f"{speed.per_second:.1f}",
            f"{speed.low:.1f}-{speed.high:.1f}",
            f"{speed.step_rate:.1f}",
            f"{speed.step_ms:.1f}",
            f"{speed.step_ms_p95:.1f}",
            f"{speed.reset_ms:.0f}",
            f"{speed.cpu_ms:.1f}",
            f"{speed.pss_mb_per_session:.0f}",
        )
    return table


def env_json(bench: EnvBench) -> str:
    """The result as one line; `sessions` maps Cairn's session counts to steps per second, resets included."""
    ours = [speed for speed in bench.speeds if speed.contender == Contender.CAIRN]
    return json.dumps(
        {
            "steps_per_s": round(bench.steps_per_s, 1),
            "vs_selenium": None if bench.vs_selenium is None else round(bench.vs_selenium, 1),
            "vs_browsergym": None if bench.vs_browsergym is None else round(bench.vs_browsergym, 1),
            "sessions": {str(speed.sessions): round(speed.per_second, 1) for speed in ours},
            "best_per_s": round(bench.best_per_s, 1),
            "settings": [asdict(speed) for speed in bench.speeds],
        }
    )
