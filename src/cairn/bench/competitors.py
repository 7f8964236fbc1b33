"""Other environments of the same pages, each in a worker process of the benchmark's virtual environment."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import cast

import psutil

from cairn.bench.traces import Trace, wire
from cairn.data.action import Action
from cairn.errors import SessionError, SessionTimeoutError, SetupError

_PYTHON = Path(__file__).parents[3] / ".venv-bench" / "bin" / "python"
_ANSWER_SECONDS = 120.0
_END_SECONDS = 20.0
_KILL_SECONDS = 5.0


class Contender(StrEnum):
    """Whose sessions are measured."""

    CAIRN = "cairn"
    SELENIUM = "selenium"  # miniwob's own environment
    BROWSERGYM = "browsergym"  # as shipped


_WORKERS = {Contender.SELENIUM: "selenium_worker.py", Contender.BROWSERGYM: "browsergym_worker.py"}


def bench_python() -> Path:
    """The interpreter of the benchmark's virtual environment. Raises `SetupError` where it is missing."""
    if not _PYTHON.is_file():
        raise SetupError(f"{_PYTHON.parents[1]} is missing; create it with scripts/bench-setup")
    return _PYTHON


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An episode that was begun."""

    goal: str
    seconds: float  # of the environment's own reset


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """What an action came to."""

    done: bool
    reward: float
    seconds: float  # of the environment's own step, screenshot included


class Competitor:
    """One environment in one worker. Every failure of the other side is a `SessionError`."""

    def __init__(self, *, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self._name = name
        self._tree: list[psutil.Process] = []

    @classmethod
    async def start(cls, contender: Contender, *, python: Path | None = None) -> "Competitor":
        """Start the worker; its browser comes with the first `open`."""
        script = files("cairn.bench.workers").joinpath(_WORKERS[contender])
        process = await asyncio.create_subprocess_exec(
            str(python or bench_python()),
            str(script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return cls(process=process, name=contender.value)

    @property
    def pid(self) -> int:
        """Of the worker, whose children are drivers and browsers."""
        return self._process.pid

    async def open(self, task: str, seed: int, *, wait_ms: float = 0.0) -> Opened:
        """Reset to the instance that `seed` makes; `wait_ms` is the pause after each action, where there is one."""
        answer = await self._ask({"op": "open", "task": task, "seed": seed, "wait_ms": wait_ms})
        return Opened(goal=str(answer["goal"]), seconds=float(answer["seconds"]))

    async def act(self, action: Action) -> Acted:
        """Perform a placed action."""
        answer = await self._ask({"op": "act", "action": wire(action)})
        return Acted(done=bool(answer["done"]), reward=float(answer["reward"]), seconds=float(answer["seconds"]))

    async def close(self) -> None:
        """End the worker and every process below it. Idempotent."""
        self._remember()
        with contextlib.suppress(SessionError):
            await self._ask({"op": "close"}, seconds=_END_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        for process in self._tree:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(self._tree, timeout=_KILL_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _KILL_SECONDS)

    def _remember(self) -> None:
        with contextlib.suppress(psutil.Error):
            worker = psutil.Process(self._process.pid)
            self._tree = [worker, *worker.children(recursive=True)]

    async def _ask(self, request: Mapping[str, object], *, seconds: float = _ANSWER_SECONDS) -> Mapping[str, str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise SessionError(f"{self._name}: the worker has no pipes")
        what = f"{self._name} to answer {request['op']!r}"
        try:
            async with asyncio.timeout(seconds):
                stdin.write(json.dumps(request).encode() + b"\n")
                await stdin.drain()
                line = await stdout.readline()
        except TimeoutError as error:
            raise SessionTimeoutError(f"waited {seconds:.0f} s for {what}") from error
        except OSError as error:
            raise SessionError(f"{self._name}: the worker is gone: {error}") from error
        if not line:
            hint = "has its Python the packages that scripts/bench-setup installs?"
            raise SessionError(f"{self._name}: the worker ended before it answered {request['op']!r}; {hint}")
        answer = cast("Mapping[str, str]", json.loads(line))
        if "error" in answer:
            raise SessionError(f"{self._name}: {answer['error']}")
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A trace played by a competitor."""

    goal: str
    done: bool
    reward: float
    performed: int
    reset_seconds: float
    step_seconds: tuple[float, ...]

    @property
    def success(self) -> bool:
        """Whether the page was fully satisfied."""
        return self.done and self.reward == 1.0


async def play_elsewhere(competitor: Competitor, trace: Trace, *, wait_ms: float = 0.0) -> Played:
    """Do the trace's actions there, until the episode ends."""
    name = trace.task.template.id.partition("/")[2]
    opened = await competitor.open(name, trace.task.seed, wait_ms=wait_ms)
    acted = Acted(done=False, reward=0.0, seconds=0.0)
    seconds: list[float] = []
    for action in trace.actions:
        acted = await competitor.act(action)
        seconds.append(acted.seconds)
        if acted.done:
            break
    return Played(
        goal=opened.goal,
        done=acted.done,
        reward=acted.reward,
        performed=len(seconds),
        reset_seconds=opened.seconds,
        step_seconds=tuple(seconds),
    )
