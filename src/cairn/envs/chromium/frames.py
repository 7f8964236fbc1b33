"""When a page is drawn, and how its picture is taken: on command in the headless shell, freely elsewhere."""

import asyncio
import base64
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from cairn.envs.chromium.connection import Connection, Reply
from cairn.errors import SessionTimeoutError

T = TypeVar("T")

_INTERVAL_MS = 1000 / 60
PATIENCE = 0.05  # seconds that something may take before a frame is drawn on its behalf
_PAUSES = (0.0, 0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # on a busy machine a frame may come without its picture
_PICTURE: Reply = {"format": "png", "optimizeForSpeed": True}


class Frames(Protocol):
    """Draws one page."""

    async def loaded(self) -> None:
        """Bring the first frames of a new document behind us; those may show a part of it only."""
        ...

    async def drawn(self) -> None:
        """Draw a frame."""
        ...

    async def pump(self, waited: Awaitable[T], *, patience: float = PATIENCE) -> T:
        """Await something of the page that may come with a frame only; `patience` seconds go by before each frame."""
        ...

    async def screenshot(self) -> bytes:
        """What the page looks like now, as PNG; empty where the browser gives none."""
        ...

    @property
    def ticks(self) -> float:
        """Time of the last frame, in ms; 0 where nobody but the browser keeps it."""
        ...


class FrameClock:
    """Frame times of one browser; they rise strictly over all of its pages, which take turns."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._ticks = asyncio.get_running_loop().time() * 1000.0

    @property
    def ticks(self) -> float:
        """The last frame's time, in ms."""
        return self._ticks

    def advance(self, ticks: float) -> None:
        """Go on from another clock's time where it is later: frame times never go back."""
        self._ticks = max(self._ticks, ticks)

    def tick(self, *, real: bool) -> float:
        """The next frame's time, in ms: one interval after the last, or, where time is `real`, not before now."""
        now = asyncio.get_running_loop().time() * 1000.0 if real else 0.0
        self._ticks = max(self._ticks + _INTERVAL_MS, now)
        return self._ticks


class DrawnOnCommand:
    """Frames under BeginFrameControl."""

    def __init__(
        self, *, connection: Connection, session: str, clock: FrameClock, ticks: float = 0.0, real: bool = False
    ) -> None:
        """Frames go on from `ticks`, and where the page's time is `real`, along with it."""
        self._real = real
        self._connection = connection
        self._session = session
        self._clock = clock
        clock.advance(ticks)

    @property
    def ticks(self) -> float:
        return self._clock.ticks

    async def _draw(self, *, picture: bool) -> bytes:
        async with self._clock.lock:
            parameters: dict[str, object] = {
                "frameTimeTicks": self._clock.tick(real=self._real),
                "interval": _INTERVAL_MS,
            }
            if picture:
                parameters["screenshot"] = _PICTURE
            reply = await self._connection.call(
                "HeadlessExperimental.beginFrame", parameters, session=self._session, seconds=15.0
            )
        return base64.b64decode(reply.get("screenshotData", ""))

    async def loaded(self) -> None:
        for _ in range(2):
            await self._draw(picture=True)

    async def drawn(self) -> None:
        await self._draw(picture=False)

    async def pump(self, waited: Awaitable[T], *, patience: float = PATIENCE) -> T:
        future = asyncio.ensure_future(waited)
        try:
            while not (await asyncio.wait({future}, timeout=patience))[0]:
                await self._draw(picture=False)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    async def screenshot(self) -> bytes:
        for pause in _PAUSES:
            data = await self._draw(picture=True)
            if data:
                return data
            await asyncio.sleep(pause)
        return b""


class DrawnFreely:
    """Frames of a browser that decides by itself when to draw."""

    def __init__(self, *, connection: Connection, session: str) -> None:
        self._connection = connection
        self._session = session

    async def loaded(self) -> None:
        return

    async def drawn(self) -> None:
        painted = {"expression": "__cairnWorld.painted()", "awaitPromise": True}
        await self._connection.call("Runtime.evaluate", painted, session=self._session)

    async def pump(self, waited: Awaitable[T], *, patience: float = PATIENCE) -> T:
        del patience
        return await waited

    @property
    def ticks(self) -> float:
        return 0.0

    async def screenshot(self) -> bytes:
        reply = await self._connection.call("Page.captureScreenshot", _PICTURE, session=self._session, seconds=15.0)
        return base64.b64decode(reply["data"])


async def bounded(waited: Awaitable[T], *, seconds: float, what: str) -> T:
    """Await at most `seconds`; a `SessionTimeoutError` says what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            return await waited
    except TimeoutError as error:
        raise SessionTimeoutError(f"waited {seconds:g} s for {what}") from error
