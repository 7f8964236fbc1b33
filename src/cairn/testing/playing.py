"""Episodes without a policy: opened, played, measured and closed, every call of them bounded."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from cairn.data.action import Action, Answer, Finish
from cairn.data.observation import Observation
from cairn.data.task import Root, Task
from cairn.data.trajectory import Evidence
from cairn.errors import SessionTimeoutError
from cairn.ports import Environment, Session, Step
from cairn.testing.agents import Agent

T = TypeVar("T")


class Call(StrEnum):
    """The calls that are timed."""

    OPEN = "open"
    SAVE = "save"
    OBSERVE = "observe"
    ACT = "act"
    EVIDENCE = "evidence"
    CLOSE = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long one kind of call took, in seconds."""

    call: Call
    count: int
    p50: float
    p90: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One finished episode: `seen` holds what was shown before the first action and after each one."""

    task: Task
    goal: str
    seen: tuple[Observation, ...]
    actions: tuple[Action, ...]
    steps: tuple[Step, ...]
    evidence: Evidence

    @property
    def digests(self) -> tuple[str, ...]:
        """The states passed through."""
        return tuple(s.digest for s in self.seen)


class Player:
    """Plays episodes in one environment and keeps the time of every call."""

    def __init__(self, *, environment: Environment, patience_s: float) -> None:
        self._environment = environment
        self._patience_s = patience_s
        self._seconds: dict[Call, list[float]] = {call: [] for call in Call}

    @property
    def latencies(self) -> tuple[Latency, ...]:
        """Percentiles of every kind of call made so far."""
        return tuple(_latency(call, seconds) for call, seconds in self._seconds.items() if seconds)

    async def timed(self, call: Call, what: str, work: Awaitable[T]) -> T:
        """Await `work`; a `SessionTimeoutError` that names it where it takes longer than the player's patience."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._patience_s):
                result = await work
        except TimeoutError as error:
            raise SessionTimeoutError(f"{call} of {what} did not return in {self._patience_s:g} s") from error
        self._seconds[call].append(time.perf_counter() - started)
        return result

    @asynccontextmanager
    async def session(self, task: Task) -> AsyncGenerator[Session]:
        """A session at the root of `task`, closed on leaving."""
        session = await self.timed(Call.OPEN, task.id, self._environment.open(task, start=Root()))
        async with self.closing(session, task.id):
            yield session

    @asynccontextmanager
    async def closing(self, session: Session, what: str) -> AsyncGenerator[None]:
        """Close an open session on leaving, however the block ends."""
        try:
            yield
        finally:
            await self.timed(Call.CLOSE, what, session.close())

    async def look(self, session: Session, task: Task) -> Observation:
        """One observation."""
        return await self.timed(Call.OBSERVE, task.id, session.observe())

    async def play(self, task: Task, agent: Agent, *, max_turns: int) -> Played:
        """One episode from the root: to its end, to `max_turns`, or until the agent has nothing left to do."""
        async with self.session(task) as session:
            return await self.go_on(session, task, agent, max_turns=max_turns)

    async def go_on(self, session: Session, task: Task, agent: Agent, *, max_turns: int) -> Played:
        """The rest of an episode in an open session."""
        seen = [await self.look(session, task)]
        actions: list[Action] = []
        steps: list[Step] = []
        while len(actions) < max_turns:
            action = await agent.choose(session, seen[-1])
            if action is None:
                break
            actions.append(action)
            steps.append(await self.timed(Call.ACT, task.id, session.act(action)))
            if steps[-1].done or isinstance(action, Answer | Finish):
                break
            seen.append(await self.look(session, task))
        evidence = await self.timed(Call.EVIDENCE, task.id, session.evidence())
        return Played(
            task=task,
            goal=session.goal,
            seen=tuple(seen),
            actions=tuple(actions),
            steps=tuple(steps),
            evidence=evidence,
        )


def _latency(call: Call, seconds: list[float]) -> Latency:
    p50, p90, p99 = (float(q) for q in np.percentile(seconds, (50, 90, 99)))
    return Latency(call=call, count=len(seconds), p50=p50, p90=p90, p99=p99, longest=max(seconds))
