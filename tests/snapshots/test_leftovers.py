"""What dead owners leave is found by their marks and removed; what has a living owner, or none, is left alone."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from cairn.scratch import OWNER_VARIABLE, is_gone, make_root, mark, mark_in, unfinished, unfinished_name
from cairn.snapshots.containers import leftovers as module
from cairn.snapshots.containers.leftovers import Kind, Leftover, clean, leftovers
from snapshots.confined import living


def dead_mark() -> str:
    """Of a process that has just ended."""
    code = "from cairn.scratch import mark; print(mark())"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def dead() -> str:
    return dead_mark()


@pytest.fixture
def sleeper(dead: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, OWNER_VARIABLE: dead})
    yield process
    process.kill()
    process.wait()


def of(
    owner: str, *, places: Sequence[Path] = (), kept: Sequence[Path] = (), groups: Path = Path("/nonexistent")
) -> list[Leftover]:
    return [left for left in leftovers(places=places, kept=kept, groups=groups) if left.owner == owner]


def test_a_mark_tells_the_living_from_the_dead_and_from_those_elsewhere(dead: str) -> None:
    assert not is_gone(mark())
    assert is_gone(dead)
    pid, started, namespace = mark().split("-")
    assert is_gone(f"{pid}-{int(started) - 1}-{namespace}")  # an earlier process with this number
    assert not is_gone(f"{pid}-{int(started) - 1}-1")  # one that cannot be seen from here
    assert mark_in(unfinished_name("image")) == mark()
    assert mark_in("cairn-4edc54dc") == ""


def test_a_process_of_a_dead_owner_is_killed(sleeper: subprocess.Popen[bytes], dead: str) -> None:
    found = [left for left in of(dead) if left.where.name == str(sleeper.pid)]
    assert [(left.kind, left.what) for left in found] == [(Kind.PROCESS, "sleep 1000")]
    assert clean(found) == ()
    assert sleeper.wait(10) == -9


def test_a_process_of_a_living_owner_or_of_none_is_left_alone() -> None:
    environment = {**os.environ, OWNER_VARIABLE: mark()}
    with subprocess.Popen(["sleep", "1000"], env=environment) as owned, subprocess.Popen(["sleep", "1000"]) as free:
        found = {left.where.name for left in leftovers(places=(), groups=Path("/nonexistent"))}
        owned.kill()
        free.kill()
    assert not found & {str(owned.pid), str(free.pid), str(os.getpid())}


def test_a_number_that_is_another_process_by_now_is_not_killed(dead: str) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        stale = Leftover(kind=Kind.PROCESS, what="", where=Path(f"/proc/{other.pid}"), owner=dead)
        assert not stale.there
        assert clean([stale]) == ()
        assert other.poll() is None
        other.kill()


def test_scratch_folders_and_unfinished_files_of_dead_owners_go_and_others_stay(tmp_path: Path, dead: str) -> None:
    living = make_root(tmp_path)
    abandoned = tmp_path / "cairn-00000000"
    abandoned.mkdir()
    (abandoned / "owner.pid").write_text(dead.replace("-", " "))
    (abandoned / "data").mkdir()
    begun = tmp_path / f"cairn-00000001.{dead}.new"
    begun.mkdir()
    images = tmp_path / "images"
    images.mkdir()
    half, whole, going_on = images / f"a.{dead}.new", images / "b", images / unfinished_name("c")
    for path in (half, whole, going_on):
        path.mkdir()
    found = of(dead, places=(tmp_path,), kept=(images,))
    assert sorted((left.kind, left.where) for left in found) == sorted(
        [(Kind.FOLDER, abandoned), (Kind.FOLDER, begun), (Kind.UNFINISHED, half)]
    )
    assert clean(found) == ()
    assert sorted(tmp_path.iterdir()) == sorted([living, images])
    assert sorted(images.iterdir()) == sorted([whole, going_on])
    assert list(unfinished(images)) == []


def test_control_groups_of_dead_owners_go(tmp_path: Path, dead: str) -> None:
    theirs, ours, foreign = (tmp_path / "pids" / name for name in (f"cairn-{dead}-1", f"cairn-{mark()}-2", "cairn-3"))
    for folder in (theirs, ours, foreign):
        folder.mkdir(parents=True)
    found = of(dead, groups=tmp_path)
    assert [left.where for left in found if left.kind is Kind.GROUP] == [theirs]
    assert clean(found) == ()
    assert sorted((tmp_path / "pids").iterdir()) == sorted([ours, foreign])


def test_what_is_mounted_in_an_abandoned_folder_is_unmounted_before_the_folder_goes(tmp_path: Path, dead: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    outside = tmp_path / "outside"
    abandoned = tmp_path / "cairn-00000000"
    (abandoned / "mounted here").mkdir(parents=True)
    (abandoned / "owner.pid").write_text(dead.replace("-", " "))
    outside.mkdir()
    (outside / "precious").touch()
    mount = subprocess.run(["mount", "--bind", outside, abandoned / "mounted here"], check=False, capture_output=True)
    if mount.returncode:
        pytest.skip(f"this host lets nobody mount: {mount.stderr.decode()}")
    make_root(tmp_path)  # whose sweep must not reach through it
    assert (outside / "precious").exists()
    found = of(dead, places=(tmp_path,))
    assert [left.kind for left in found] == [Kind.MOUNT, Kind.FOLDER]
    assert clean(found) == ()
    assert (outside / "precious").exists()
    assert not abandoned.exists()


def test_what_cannot_be_removed_is_told(tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = Leftover(kind=Kind.FOLDER, what="", where=tmp_path, owner=dead)
    monkeypatch.setattr(module, "remove_all", lambda _path: None)
    assert clean([stubborn], seconds=0.1) == (stubborn,)


# ── with real containers ──────────────────────────────────────────────────────

OWNER = """
import asyncio, os, sys
from pathlib import Path
from cairn.scratch import make_root, mark
from cairn.snapshots.containers.yard import Yard

async def main():
    root = make_root(Path(sys.argv[1]))
    yard = Yard(folder=root / "yard", command=["sleep", "1000"], site=Path(sys.argv[2]))
    first = await yard.started()
    (await first.connect()).close()
    await first.freeze(yard.place("state"))
    second = await yard.thawed(yard.place("state"))
    (await second.connect()).close()
    print(mark(), first.pid, second.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def owner_of_containers(memory: Path, site: Path) -> tuple[asyncio.subprocess.Process, str, list[int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER,
        str(memory),
        str(site),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell may ignore it
    )
    assert process.stdout is not None
    owner, *pids = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
    return process, owner, [int(pid) for pid in pids]


async def eventually_gone(pids: list[int]) -> bool:
    for _ in range(1000):
        if not living(pids):
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.enable_socket
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("supervisors", "end"),
    [("live on", signal.SIGKILL), ("are killed first", signal.SIGKILL), ("live on", signal.SIGINT)],
)
async def test_nothing_is_left_of_containers_whose_owner_was_ended(
    memory_folder: Path, tmp_path: Path, supervisors: str, end: signal.Signals
) -> None:
    process, owner, pids = await owner_of_containers(memory_folder, tmp_path)
    if supervisors == "are killed first":
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # what ends of itself meanwhile
                if any("container.sh" in word for word in child.cmdline()):  # shells, and those they made
                    child.kill()
    process.send_signal(end)
    await asyncio.wait_for(process.wait(), 60)
    if supervisors == "live on":
        assert await eventually_gone(pids)
    found = [left for left in leftovers(places=(memory_folder,)) if left.owner == owner]
    if supervisors == "are killed first":
        assert {str(pid) for pid in pids} <= {left.where.name for left in found}
    assert Kind.FOLDER in {left.kind for left in found}
    assert clean(found) == ()
    assert await eventually_gone(pids)
    assert [left for left in leftovers(places=(memory_folder,)) if left.owner == owner] == []
    assert os.listdir(memory_folder) == []  # noqa: PTH208 - pathlib's is for blocking code
