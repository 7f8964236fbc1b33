"""Runs a command's asynchronous part, and stops it cleanly when the process is told to end."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[object, object, T]) -> T:
    """The result of `work`. SIGTERM cancels it as Ctrl-C does, so that it can save; both raise `KeyboardInterrupt`."""
    try:
        return asyncio.run(_stoppable(work))
    except asyncio.CancelledError as stopped:
        raise KeyboardInterrupt from stopped


async def _stoppable(work: Coroutine[object, object, T]) -> T:
    task = asyncio.current_task()
    if task is not None:
        for ending in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
            asyncio.get_running_loop().add_signal_handler(ending, task.cancel)
    return await work
