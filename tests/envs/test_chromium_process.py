import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.discovery import Channel, find_browser
from cairn.envs.chromium.process import spawn
from cairn.errors import SessionError, SetupError
from cairn.scratch import make_root, sweep

pytestmark = pytest.mark.browser


@pytest_asyncio.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    started = await Browser.start(binary=find_browser(), root=tmp_path)
    yield started
    await started.close()


def alive(pids: list[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    running: list[int] = []
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            running.append(pid)
    return running


async def eventually(holds: Callable[[], bool], what: str) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"never: {what}")


async def test_closing_leaves_neither_processes_nor_files(browser: Browser) -> None:
    pids, scratch = browser.processes(), browser.scratch
    assert len(pids) > 2
    await browser.close()
    await browser.close()
    await eventually(lambda: not alive(pids), "all processes ended")
    assert not scratch.exists()


async def test_a_killed_browser_fails_whoever_waits_on_it_at_once(browser: Browser) -> None:
    page = await browser.new_page(width=100, height=100)
    waiting = asyncio.ensure_future(page.evaluate("new Promise(() => {})", seconds=30.0))
    await asyncio.sleep(0)
    os.kill(browser.processes()[1], signal.SIGKILL)
    with pytest.raises(SessionError, match="ended"):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(SessionError, match="ended"):
        await page.evaluate("1")


async def test_a_killed_browser_leaves_nothing_once_it_is_closed(browser: Browser) -> None:
    pids, scratch = browser.processes(), browser.scratch
    os.kill(pids[1], signal.SIGKILL)
    await browser.ended
    await browser.close()
    await eventually(lambda: not alive(pids), "all processes ended")
    assert not scratch.exists()


async def test_a_stopped_browser_is_closed_all_the_same(browser: Browser) -> None:
    pids, scratch = browser.processes(), browser.scratch
    os.kill(pids[1], signal.SIGSTOP)
    await browser.close()
    await eventually(lambda: not alive(pids), "all processes ended")
    assert not scratch.exists()


async def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    deep, temporary = tmp_path / "too-deep-for-sockets-to-lie-below-it-as-their-paths-have-a-limit", tmp_path / "tmp"
    temporary.mkdir()
    program = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from cairn.envs.chromium.browser import Browser
        from cairn.envs.chromium.discovery import find_browser

        async def main():
            browser = await Browser.start(binary=find_browser(), root=Path({str(deep)!r}))
            await browser.new_page(width=100, height=100)
            print(*browser.processes(), flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
    """)
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary)}
    )
    assert owner.stdout is not None
    pids = [int(word) for word in (await asyncio.wait_for(owner.stdout.readline(), 30)).split()]
    assert len(alive(pids)) == len(pids) > 2
    assert list(temporary.iterdir())
    owner.kill()
    await owner.wait()
    await eventually(lambda: not alive(pids), "all processes ended")
    await eventually(lambda: not [*deep.iterdir(), *temporary.iterdir()], "the scratch directories removed")


async def test_a_program_that_cannot_start_is_a_session_error_with_its_last_words(tmp_path: Path) -> None:
    failing = tmp_path / "browser"
    failing.write_text("#!/bin/sh\necho 'cannot open display' >&2\nexit 3\n")
    failing.chmod(0o755)
    with pytest.raises(SessionError, match="cannot open display"):
        await Browser.start(binary=find_browser(executable=failing), root=tmp_path / "root")
    assert not list((tmp_path / "root").iterdir())


async def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SetupError, match=str(blocked)):
        spawn(["true"], root=blocked, environment={})


def test_sweeping_removes_the_roots_of_dead_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living = make_root()
    dead, reused, foreign = (tmp_path / f"cairn-{name}" for name in ("dead", "reused", "foreign"))
    for directory in (dead, reused, foreign):
        directory.mkdir()
    (dead / "owner.pid").write_text("999999999 1")
    (reused / "owner.pid").write_text(f"{os.getpid()} 1")  # another process had this number before
    (foreign / "data").touch()
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([living, foreign])


def test_a_missing_executable_is_a_setup_error_that_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="apt-get install"):
        find_browser(executable=tmp_path / "nothing")


def test_a_machine_without_browsers_is_a_setup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("cairn.envs.chromium.discovery._SHELL_DIRECTORIES", ())
    for channel in (None, *Channel):
        with pytest.raises(SetupError, match="apt-get install"):
            find_browser(channel=channel)
