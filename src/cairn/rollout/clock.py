"""Time as the running event loop keeps it: real in production, virtual on a virtual loop."""

import asyncio


class LoopClock:
    """The event loop's own clock."""

    def now(self) -> float:
        """Seconds, monotonic; to be called from a coroutine."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
