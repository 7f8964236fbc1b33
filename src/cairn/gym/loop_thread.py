"""An event loop on a thread of its own, for callers that are synchronous."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from cairn.errors import SessionTimeoutError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines one at a time. The thread lives until `close`, and so may own subprocesses."""

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s = patience_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cairn-gym", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._loop.is_closed()

    def run(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; a `SessionTimeoutError` naming `what` where it takes too long."""
        future = asyncio.run_coroutine_threadsafe(self._bounded(what, work), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of use where Ctrl-C ended the wait: the work must not go on behind the caller's back
            raise

    def close(self) -> None:
        """Stop the loop and the thread. Idempotent."""
        if self.closed:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _bounded(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._patience_s):
                return await work
        except TimeoutError as error:
            raise SessionTimeoutError(f"{what} did not end in {self._patience_s:g} s") from error


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=5)
