"""Runs a command's asynchronous part, and stops it cleanly when the process is told to end."""

import asyncio
import os
import signal
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

STOPPED: Final = 130
"""The exit status of a command that was told to end."""

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed


def run_async(work: Coroutine[object, object, T]) -> T:
    """The result of `work`.

    What tells the process to end cancels it, so that it can save, and raises `KeyboardInterrupt`; a second Ctrl-C ends
    the process at once.
    """
    try:
        return asyncio.run(_stoppable(work))
    except asyncio.CancelledError as stopped:
        raise KeyboardInterrupt from stopped


async def _stoppable(work: Coroutine[object, object, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    with _cancelled_by_signals(task):
        return await work


@contextmanager
def _cancelled_by_signals(task: asyncio.Task[object]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    pressed = 0

    def cancel() -> None:
        if not task.cancelling():  # a second time would cut the saving short
            task.cancel()

    def end(number: int, _frame: FrameType | None) -> None:  # between two instructions: the loop may be held up
        nonlocal pressed
        if number == signal.SIGINT:
            pressed += 1
            if pressed > 1:
                os.write(2, b"ended at once\n")
                os._exit(STOPPED)  # what is left behind is removed as after kill -9
            os.write(2, b"\nstopping; Ctrl-C again ends at once, without saving\n")
        loop.call_soon_threadsafe(cancel)

    # what is ignored stays so: `nohup`, and jobs in the background
    replaced = {one: signal.signal(one, end) for one in _ENDINGS if signal.getsignal(one) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for one, before in replaced.items():
            signal.signal(one, before or signal.SIG_DFL)
