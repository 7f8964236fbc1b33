"""Either browser in a container: without the tab that it starts with, saved, and opened to play on."""

import tempfile
from pathlib import Path
from typing import Literal

import psutil
import pytest

from cairn.app.environments import build_environment
from cairn.app.saved_states import task_named
from cairn.app.snapshots import with_snapshots
from cairn.config.tables import EnvironmentOptions, SnapshotOptions
from cairn.data.task import FromSnapshot, Root
from cairn.snapshot_ports import ContainedSession
from cairn.snapshots.home import Home
from cairn.snapshots.sessions import SavableSession
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from snapshots.needs import needs_criu
from snapshots.playing import expert_step, finished

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket, pytest.mark.slow]


def renderers(session: SavableSession) -> int:
    assert isinstance(session.inner, ContainedSession)
    inside = psutil.Process(session.inner.container.pid).children(recursive=True)
    return sum("--type=renderer" in process.cmdline() for process in inside)


@pytest.mark.parametrize(("browser", "most"), [("shell", 1), ("full", 3)])  # the whole one draws its own menus, too
async def test_a_state_goes_on_in_either_browser(browser: Literal["shell", "full"], most: int) -> None:
    needs_criu()
    blobs, events = MemoryBlobs(), MemoryEvents()
    environment = build_environment(EnvironmentOptions(), blobs=blobs)
    options = SnapshotOptions(store="criu", browser=browser)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder=Path(folder) / "kept")
        try:
            async with with_snapshots(
                environment, options, home=home, blobs=blobs, events=events, fallback=False
            ) as saved:
                task = task_named(saved, "login-user", index=3)
                session = await saved.open(task, start=Root())
                await session.observe()
                assert not await expert_step(session)
                kept = await session.snapshot()
                again = await saved.open(task, start=FromSnapshot(id=kept))
                assert renderers(again) <= most
                assert await finished(again) == 1.0
                await session.close()
        finally:
            home.raze()
    assert set(events.kinds()) == {"snapshot_store", "snapshot_saved"}
