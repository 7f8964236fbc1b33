"""Agents without a model: what an environment is checked with, and what a policy must beat."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cairn.data.action import Action, Click, Finish, Key, Point, Type, Wait
from cairn.data.observation import Element, Observation
from cairn.ports import ExpertSession, Session

_TYPING_ROLES = frozenset({"input", "textarea", "textbox", "searchbox", "spinbutton"})


class Agent(Protocol):
    """Chooses actions, one at a time."""

    async def choose(self, session: Session, seen: Observation, /) -> Action | None:
        """The next action; None where the agent has nothing left to do."""
        ...


class NoopAgent:
    """Waits a few turns, then declares itself done: no task is solved by doing nothing."""

    def __init__(self, *, waits: int = 2) -> None:
        self._left = waits

    async def choose(self, _session: Session, _seen: Observation, /) -> Action | None:
        self._left -= 1
        return Wait(0.05) if self._left >= 0 else Finish()


class RandomAgent:
    """Clicks, types words of the goal and presses keys, blindly. Depends on `rng` and on what is seen alone."""

    def __init__(self, *, rng: np.random.Generator) -> None:
        self._rng = rng

    async def choose(self, session: Session, seen: Observation, /) -> Action | None:
        usable = [e for e in seen.elements if e.interactive and "disabled" not in e.states]
        kind = self._rng.random()
        if usable and kind < 0.7:
            return self._on(usable[int(self._rng.integers(len(usable)))], session.goal)
        if kind < 0.9:
            return Click(Point(float(self._rng.random()), float(self._rng.random())))
        return Key("Enter") if kind < 0.95 else Wait(0.05)

    def _on(self, element: Element, goal: str) -> Action:
        words = goal.split()
        if element.role in _TYPING_ROLES and words and self._rng.random() < 0.7:
            return Type(words[int(self._rng.integers(len(words)))].strip("\"'.,:;"), element.id)
        return Click(element.id)


class ExpertAgent:
    """Does what the session's own expert says."""

    async def choose(self, session: Session, _seen: Observation, /) -> Action | None:
        return await session.expert_action() if isinstance(session, ExpertSession) else None


class ReplayAgent:
    """Performs given actions, whatever it sees."""

    def __init__(self, *, actions: Sequence[Action]) -> None:
        self._actions = iter(tuple(actions))

    async def choose(self, _session: Session, _seen: Observation, /) -> Action | None:
        return next(self._actions, None)
