"""criu killed, hung or refusing in the middle; memory full; images gone: typed errors, and nothing left behind."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.data.ids import SnapshotId
from cairn.errors import SessionError, SessionTimeoutError
from cairn.scratch import mark, mark_in
from cairn.snapshots.containers import container as containers
from cairn.snapshots.containers import criu
from cairn.snapshots.containers.cgroups import marked_groups, unlimited_here
from cairn.snapshots.containers.container import Container
from cairn.snapshots.containers.criu import DeclinedError
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.yard import Yard
from snapshots.confined import inside, mounted, yard_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(180)]
A = SnapshotId("a")


@pytest.fixture
def yard() -> Iterator[Yard]:
    with yard_of() as made:
        yield made
        assert not list((made.place("").parent / "containers").glob("*/*"))
        assert mark() not in [mark_in(group.name) for group in marked_groups()]


def at(yard: Yard, moment: str, command: str) -> None:
    """Have criu's hook run a command at a moment of its work."""
    hook = yard.place("").parent / "hook.sh"
    first, _, rest = hook.read_text().partition("\n")
    hook.write_text(f'{first}\n[ "$CRTOOLS_SCRIPT_ACTION" != {moment} ] || {{ {command}; }}\n{rest}')


async def running(yard: Yard) -> Container:
    """A container whose program answers."""
    container = await yard.started()
    assert await said(container) == "alive"
    return container


async def said(container: Container) -> object:
    return await inside(container, "said = 'alive'")


@pytest.mark.parametrize("moment", ["pre-dump", "network-lock", "post-dump"])
async def test_criu_killed_while_it_saves_ends_the_container_and_keeps_no_image(
    yard: Yard, memory_folder: Path, moment: str
) -> None:
    container = await running(yard)
    images = Images(memory=memory_folder, disk=memory_folder / "disk", budget=1 << 30)
    at(yard, moment, "kill -9 $PPID; sleep 60")
    with pytest.raises(SessionError, match=r"could not be saved: criu was ended by signal 9"):
        async with images.writing(A) as image:
            await container.freeze(image)
    with pytest.raises(SessionError, match="the container has been ended"):
        await container.connect()
    assert os.listdir(memory_folder) == []  # noqa: PTH208 - pathlib's is for blocking code
    await container.end()


@pytest.mark.parametrize("moment", ["setup-namespaces", "post-setup-namespaces", "post-restore", "pre-resume"])
async def test_criu_killed_while_it_opens_is_a_session_error(yard: Yard, moment: str) -> None:
    origin = await running(yard)
    image = yard.place("state")
    await origin.freeze(image)
    at(yard, moment, "kill -9 $PPID")
    with pytest.raises(SessionError, match="no container came up: Killed"):
        await yard.thawed(image)
    assert await said(origin) == "alive"
    await origin.end()


async def test_criu_that_hangs_is_a_timeout(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    container = await running(yard)
    image = yard.place("state")
    await container.freeze(image)
    monkeypatch.setattr(containers, "APPEAR_SECONDS", 1.0)
    monkeypatch.setattr(criu, "_DUMP_SECONDS", 1.0)
    at(yard, "post-restore", "exec sleep 600")
    with pytest.raises(SessionTimeoutError, match="waited 1 s for a container's first process"):
        await yard.thawed(image)
    at(yard, "network-lock", "exec sleep 600")
    with pytest.raises(SessionTimeoutError, match="criu did not finish within 1 s"):
        await container.freeze(yard.place("other"))
    with pytest.raises(SessionError, match="ended"):
        await container.connect()


async def test_a_save_that_is_cancelled_ends_the_container(yard: Yard) -> None:
    container = await running(yard)
    begun = yard.place("begun")
    at(yard, "network-lock", f"echo >{begun}; exec sleep 600")
    begun.parent.mkdir(exist_ok=True)
    freezing = asyncio.create_task(container.freeze(yard.place("state")))
    async with asyncio.timeout(30):
        while not os.path.exists(begun):  # noqa: ASYNC110, ASYNC240, PTH110 - another process makes it
            await asyncio.sleep(0.01)
    freezing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await freezing
    with pytest.raises(SessionError, match="ended"):
        await container.connect()


async def test_a_container_that_criu_declines_to_save_goes_on(yard: Yard) -> None:
    container = await running(yard)
    at(yard, "post-dump", "exit 7")
    with pytest.raises(DeclinedError, match="could not be saved, attempt 1"):
        await container.freeze(yard.place("state"))
    assert await said(container) == "alive"
    await container.end()


async def test_a_process_that_is_just_ending_is_waited_for(yard: Yard) -> None:
    container = await running(yard)
    flag = yard.place("").parent / "once"
    told = 'echo "Zombies with threads are not supported" >>"$CAIRN_IMAGE/dump.log"'
    at(yard, "post-dump", f"[ -e {flag} ] || {{ touch {flag}; {told}; exit 7; }}")
    await container.freeze(yard.place("state"))
    assert flag.exists()
    await container.end()


async def test_a_full_memory_is_told_and_what_is_saved_stays_whole(yard: Yard, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", size=24 << 20) as small:
        container = await running(yard)
        images = Images(memory=small / "images", disk=tmp_path / "disk", budget=1 << 30)
        async with images.writing(A) as image:
            await container.freeze(image)
        full = SnapshotId("full")
        with (small / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, os.statvfs(small).f_bavail * 4096 - (1 << 20))
        with pytest.raises(SessionError, match=r"snapshot full could not be written: .*images is full; remove"):
            async with images.writing(full) as image:
                await container.freeze(image)
        assert await said(container) == "alive"
        assert [path.name for path in (small / "images").iterdir()] == [A]
        async with Images(memory=small / "images", disk=tmp_path / "disk", budget=1 << 30).reading(A) as image:
            branch = await yard.thawed(image)
        assert await said(branch) == "alive"
        await branch.end()
        await container.end()


async def test_an_image_that_was_moved_to_disk_can_be_opened(yard: Yard, memory_folder: Path, tmp_path: Path) -> None:
    container = await running(yard)
    await inside(container, "import builtins\nbuiltins.kept = 'since before'")
    images = Images(memory=memory_folder / "images", disk=tmp_path / "disk", budget=0)
    async with images.writing(A) as image:
        await container.freeze(image)
    assert os.listdir(memory_folder / "images") == []  # noqa: PTH208 - pathlib's is for blocking code
    for _ in range(2):
        async with images.reading(A) as image:
            branch = await yard.thawed(image)
        assert await inside(branch, "said = kept") == "since before"
        await branch.end()
    await container.end()


async def test_an_image_that_is_gone_or_no_image_is_a_session_error(yard: Yard, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no container came up"):
        await yard.thawed(tmp_path / "nothing")
    (tmp_path / "empty" / "files").mkdir(parents=True)
    with pytest.raises(SessionError, match=r"no container came up: Error"):
        await yard.thawed(tmp_path / "empty")


async def test_images_do_not_count_as_the_containers_memory(yard: Yard) -> None:
    if "memory" in unlimited_here():
        pytest.skip("this host has no control group that counts memory")
    container = await running(yard)
    await inside(container, "import builtins\nbuiltins.kept = bytearray(b'x' * (30 << 20))")
    before = memory_of(container)
    for number in range(3):
        await container.freeze(yard.place(f"state{number}"))
    assert memory_of(container) < before + (20 << 20)
    await container.end()


def memory_of(container: Container) -> int:
    for folder in container._group.folders:
        for name in ("memory.current", "memory.usage_in_bytes"):
            if (folder / name).exists():
                return int((folder / name).read_text())
    raise AssertionError("no group counts memory")


def wait_until_gone(pid: int) -> None:
    """It takes a container a moment to follow its browser."""
    for _ in range(2000):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.005)


async def test_a_browser_that_ends_is_told_with_its_last_words(yard: Yard) -> None:
    container = await running(yard)
    with pytest.raises((EOFError, ConnectionError)):
        await inside(container, "import os, signal\nos.write(2, b'cannot go on')\nos.kill(os.getpid(), signal.SIGKILL)")
    await asyncio.to_thread(wait_until_gone, container.pid)
    with pytest.raises(SessionError, match="the container ended"):
        await container.connect()
    await container.end()


async def test_without_control_groups_nothing_is_left_either(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make = containers.ControlGroup.make
    monkeypatch.setattr(containers.ControlGroup, "make", lambda **limits: make(root=tmp_path / "none", **limits))
    container = await running(yard)
    await container.freeze(yard.place("state"))
    at(yard, "post-restore", "kill -9 $PPID")
    with pytest.raises(SessionError, match="no container came up: Killed"):
        await yard.thawed(yard.place("state"))
    network = network_of(Path(f"/proc/{container.pid}"))
    assert network in networks()
    await container.end()
    assert network not in networks()


def networks() -> set[str]:
    return {network_of(process) for process in Path("/proc").glob("[0-9]*")}


def network_of(process: Path) -> str:
    """Empty of one that has ended."""
    try:
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return "" if ended else str((process / "ns" / "net").readlink())
    except OSError:
        return ""
