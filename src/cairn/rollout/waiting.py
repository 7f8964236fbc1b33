"""Waits that end: every call to something outside has a limit, and says what it waited for when it runs out."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from cairn.errors import BoundaryError, SessionError, SessionTimeoutError, boundary


@asynccontextmanager
async def bounded(kind: type[BoundaryError], what: str, *, seconds: float) -> AsyncGenerator[None]:
    """Give the block `seconds` at most, and attribute what escapes it to `kind`; `what` names it in the error."""
    try:
        # boundary() sits inside, so that a TimeoutError of the block's own is attributed like any other failure
        async with asyncio.timeout(seconds), boundary(kind, what):
            yield
    except TimeoutError as error:
        late = SessionTimeoutError if issubclass(kind, SessionError) else kind
        raise late(f"{what}: no answer within {seconds:.4g} s") from error


async def finish(work: asyncio.Task[None]) -> None:
    """Wait for `work` however often this task is cancelled meanwhile; the cancellation goes on afterwards.

    `work` must bound itself: nothing else ends this wait.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    work.result()
