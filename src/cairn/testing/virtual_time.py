"""An event loop whose time is virtual: it jumps to the next timer as soon as every task waits.

Time-outs, back-offs and hangs of hours are then tested in milliseconds, and in the same order every time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 5.0  # real seconds in which a thread may still wake a loop that has no timer


class _JumpingSelector(selectors.SelectSelector):
    """Never waits for a timer: moves `now` instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = super().select(_PATIENCE)
            if not ready:
                raise RuntimeError("deadlock: every task waits, and no timer will wake one")
            return ready
        ready = super().select(0)
        if not ready:
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on virtual seconds, from 0. Meant for code without threads: they take no virtual time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jumping.now


def run_virtually(main: Coroutine[object, object, T]) -> T:
    """`asyncio.run` on a `VirtualLoop`; a deadlock raises instead of hanging."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
