import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.discovery import find_browser
from cairn.envs.chromium.page import Page
from cairn.envs.chromium.pool import BrowserPool, Lease, PoolLimits
from cairn.errors import SessionError, SessionTimeoutError

pytestmark = pytest.mark.browser


class Launcher:
    """Starts real browsers, remembers them, and fails when told to."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.started: list[Browser] = []
        self.failures = 0
        self.again = asyncio.Event()

    async def __call__(self) -> Browser:
        if self.failures:
            self.failures -= 1
            raise SessionError("no luck")
        self.started.append(await Browser.start(binary=find_browser(), root=self._root))
        self.again.set()
        return self.started[-1]


@pytest_asyncio.fixture
async def launcher() -> AsyncIterator[Launcher]:
    with tempfile.TemporaryDirectory() as root:
        launcher = Launcher(Path(root))
        yield launcher
        for browser in launcher.started:
            await browser.close()


def pool_of(
    launcher: Launcher, *, browsers: int = 1, pages: int = 1, sessions: int = 100, wait: float = 30
) -> BrowserPool:
    async def open_page(browser: Browser) -> Page:
        return await browser.new_page(width=50, height=50)

    limits = PoolLimits(browsers=browsers, pages_per_browser=pages, recycle_after_sessions=sessions, wait_seconds=wait)
    return BrowserPool(launch=launcher, open_page=open_page, limits=limits)


async def kill(browser: Browser) -> None:
    os.kill(browser.processes()[1], signal.SIGKILL)
    await browser.ended


async def test_a_tab_is_lent_to_one_at_a_time_and_then_again(launcher: Launcher) -> None:
    pool = pool_of(launcher, pages=2)
    first, second = await pool.borrow(), await pool.borrow()
    assert first.page is not second.page
    await pool.give_back(first)
    third = await pool.borrow()
    assert third.page is first.page
    await pool.close()


async def test_a_place_is_waited_for_and_the_wait_is_bounded(launcher: Launcher) -> None:
    pool = pool_of(launcher, wait=0.2)
    lease = await pool.borrow()
    with pytest.raises(SessionTimeoutError, match="one of 1 places"):
        await pool.borrow()
    waiting = asyncio.ensure_future(pool.borrow())
    await asyncio.sleep(0)
    await pool.give_back(lease)
    assert (await waiting).page is lease.page
    await pool.close()


async def test_a_broken_tab_is_not_lent_again(launcher: Launcher) -> None:
    pool = pool_of(launcher)
    lease = await pool.borrow()
    with pytest.raises(SessionTimeoutError):
        await lease.page.evaluate("new Promise(() => {})", seconds=0.01)
    await pool.give_back(lease)
    again = await pool.borrow()
    assert again.page is not lease.page
    assert await again.page.evaluate("1 + 1") == 2
    await pool.close()


async def test_a_dead_browser_is_replaced_before_anybody_asks(launcher: Launcher) -> None:
    pool = pool_of(launcher, browsers=2)
    lost, kept = await pool.borrow(), await pool.borrow()
    assert lost.browser is not kept.browser
    launcher.again.clear()
    await kill(lost.browser)
    await asyncio.wait_for(launcher.again.wait(), 20)
    assert await kept.page.evaluate("1 + 1") == 2  # its death cost nobody else anything
    await pool.give_back(lost)
    assert await (await pool.borrow()).page.evaluate("1 + 1") == 2
    assert len(launcher.started) == 3
    assert not lost.browser.scratch.exists()
    await pool.close()


async def test_an_aged_browser_is_replaced_once_it_is_idle(launcher: Launcher) -> None:
    pool = pool_of(launcher, pages=2, sessions=2)
    leases = [await pool.borrow(), await pool.borrow()]
    for lease in leases:
        await pool.give_back(lease)
    lease = await pool.borrow()
    assert lease.browser is not leases[0].browser
    await asyncio.wait_for(leases[0].browser.ended, 10)
    await pool.close()


async def test_a_start_that_fails_is_tried_again_but_not_for_ever(launcher: Launcher) -> None:
    pool = pool_of(launcher)
    launcher.failures = 2
    await pool.give_back(await pool.borrow())
    await pool.close()
    hopeless = pool_of(launcher)
    launcher.failures = 3
    with pytest.raises(SessionError, match="3 attempts: no luck"):
        await hopeless.borrow()
    assert isinstance(await hopeless.borrow(), Lease)  # the place is free again
    await hopeless.close()


async def test_closing_ends_every_browser_and_whoever_waits(launcher: Launcher) -> None:
    pool = pool_of(launcher)
    lease = await pool.borrow()
    waiting = asyncio.ensure_future(pool.borrow())
    await asyncio.sleep(0)
    await pool.close()
    await pool.close()
    with pytest.raises(SessionError, match="closed"):
        await waiting
    with pytest.raises(SessionError):
        await lease.page.evaluate("1")
    await pool.give_back(lease)
    assert not launcher.started[0].scratch.exists()
