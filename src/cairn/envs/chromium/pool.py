"""Warm browsers. Tabs are lent to one session at a time; browsers are replaced when they die, age or grow."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.page import Page
from cairn.errors import BoundaryError, ConfigError, SessionError, SessionTimeoutError

_MOST_PAGES = 8  # beyond it pages of one browser slow each other down more than they add
_START_ATTEMPTS = 3
_WEIGH_EVERY = 25  # sessions of one browser


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How many places there are, and when a browser has served long enough."""

    browsers: int = 1
    pages_per_browser: int = 4
    recycle_after_sessions: int = 2000
    recycle_above_mb: float = 1500.0
    wait_seconds: float = 300.0  # for a free place

    def __post_init__(self) -> None:
        if self.browsers < 1:
            raise ConfigError(f"browsers must be at least 1, got {self.browsers}")
        if not 1 <= self.pages_per_browser <= _MOST_PAGES:
            raise ConfigError(f"pages_per_browser must be in [1, {_MOST_PAGES}], got {self.pages_per_browser}")

    @property
    def capacity(self) -> int:
        """Sessions at once."""
        return self.browsers * self.pages_per_browser


@dataclass(slots=True, kw_only=True, eq=False)
class _Slot:
    """Where one browser stands, and its successors after it."""

    browser: Browser | None = None
    idle: list[Page] = field(default_factory=list[Page])
    busy: int = 0
    served: int = 0
    retiring: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lease:
    """A tab on loan."""

    page: Page
    browser: Browser


class BrowserPool:
    """Lends tabs. `launch` starts a browser and `open_page` a tab of it; both may be retried."""

    def __init__(
        self,
        *,
        launch: Callable[[], Awaitable[Browser]],
        open_page: Callable[[Browser], Awaitable[Page]],
        limits: PoolLimits,
    ) -> None:
        self._launch = launch
        self._open_page = open_page
        self._limits = limits
        self._slots = [_Slot() for _ in range(limits.browsers)]
        self._lent: dict[Lease, _Slot] = {}
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def browsers(self) -> list[Browser]:
        """Those that run now."""
        return [slot.browser for slot in self._slots if slot.browser is not None]

    async def borrow(self) -> Lease:
        """A tab of the least busy browser, once a place is free. Give it back."""
        slot = await self._reserve()
        try:
            async with slot.lock:
                browser = await self._living(slot)
                page = slot.idle.pop() if slot.idle else None
            lease = Lease(page=page or await self._open_page(browser), browser=browser)
        except BaseException:
            await self._release(slot)
            raise
        self._lent[lease] = slot
        return lease

    async def give_back(self, lease: Lease) -> None:
        """Take a tab back; a broken one is closed rather than lent again."""
        slot, browser = self._lent.pop(lease), lease.browser
        slot.served += 1
        if browser is slot.browser and not browser.ended.done():
            if lease.page.broken:
                await self._discard(lease)
            else:
                slot.idle.append(lease.page)
            slot.retiring = slot.retiring or await self._worn(slot, browser)
        await self._release(slot)

    async def close(self) -> None:
        """End every browser. Idempotent."""
        self._closed = True
        for task in self._background:
            task.cancel()
        await asyncio.wait(self._background) if self._background else None
        for slot in self._slots:
            browser, slot.browser = slot.browser, None
            slot.idle.clear()
            if browser is not None:
                await browser.close()
        async with self._changed:
            self._changed.notify_all()

    # ── places ────────────────────────────────────────────────────────────────

    async def _reserve(self) -> _Slot:
        limits = self._limits
        try:
            async with asyncio.timeout(limits.wait_seconds), self._changed:
                while True:
                    if self._closed:
                        raise SessionError("the pool of browsers is closed")
                    slot = self._roomiest()
                    if slot is not None:
                        slot.busy += 1
                        return slot
                    await self._changed.wait()
        except TimeoutError as error:
            raise SessionTimeoutError(
                f"waited {limits.wait_seconds:g} s for one of {limits.capacity} places in the browsers"
            ) from error

    def _roomiest(self) -> _Slot | None:
        room = [s for s in self._slots if s.busy < self._limits.pages_per_browser and not s.retiring]
        return min(room, key=lambda slot: (slot.busy, slot.browser is None), default=None)

    async def _release(self, slot: _Slot) -> None:
        slot.busy -= 1
        if slot.retiring and slot.busy == 0:
            self._retire(slot)
        async with self._changed:
            self._changed.notify_all()

    # ── browsers ──────────────────────────────────────────────────────────────

    async def _living(self, slot: _Slot) -> Browser:
        """The slot's browser, started anew where it is missing or dead. The caller holds the slot's lock."""
        if slot.browser is not None and not slot.browser.ended.done():
            return slot.browser
        if slot.browser is not None:
            dead, slot.browser = slot.browser, None
            slot.idle.clear()
            await dead.close()
        browser = await self._started()
        if self._closed:
            await browser.close()
            raise SessionError("the pool of browsers is closed")
        slot.browser, slot.served, slot.retiring = browser, 0, False
        browser.ended.add_done_callback(lambda _: self._spawn(self._replace(slot, browser)))
        return browser

    async def _started(self) -> Browser:
        failures: list[str] = []
        for _ in range(_START_ATTEMPTS):
            try:
                return await self._launch()
            except SessionError as error:
                failures.append(str(error))
        raise SessionError(f"no browser started in {_START_ATTEMPTS} attempts: {failures[-1]}")

    async def _replace(self, slot: _Slot, browser: Browser) -> None:
        """A browser died: have the next one ready before somebody asks."""
        if slot.browser is browser and not self._closed:
            async with slot.lock:
                with contextlib.suppress(BoundaryError):  # whoever borrows next hears of it
                    await self._living(slot)

    async def _worn(self, slot: _Slot, browser: Browser) -> bool:
        if slot.served >= self._limits.recycle_after_sessions:
            return True
        if slot.served % _WEIGH_EVERY:
            return False
        return await asyncio.to_thread(browser.memory_mb) > self._limits.recycle_above_mb

    def _retire(self, slot: _Slot) -> None:
        browser, slot.browser, slot.retiring = slot.browser, None, False
        slot.idle.clear()
        if browser is not None:
            self._spawn(browser.close())

    async def _discard(self, lease: Lease) -> None:
        """Close a tab; a browser that cannot even do that is ended, whatever else runs on it."""
        try:
            await lease.browser.close_page(lease.page)
        except SessionError:
            await lease.browser.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
