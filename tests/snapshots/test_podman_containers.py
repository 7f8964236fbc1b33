"""Real containers of Podman's, with a program that only sleeps in the browser's place: nothing outlives its owner."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn.errors import SessionError
from cairn.scratch import PREFIX as NAME_PREFIX
from cairn.scratch import make_root, mark_in, remove_all
from cairn.snapshots.containers.criu import DeclinedError
from cairn.snapshots.containers.family import children_of, lives
from cairn.snapshots.containers.leftovers import clean, leftovers
from cairn.snapshots.containers.podman import PodmanContainer, PodmanOptions, PodmanYard
from cairn.snapshots.containers.podman_host import Runtime, podman_lacking
from cairn.snapshots.containers.podman_program import ARCHIVE, Compression
from cairn.snapshots.containers.yard import PREFIX, Limits
from snapshots.needs import needs_podman

MEMORY = Path("/dev/shm")
SLEEPER = ["sleep", "1000"]
SECONDS = 30.0


pytestmark = [
    pytest.mark.browser,  # one process at a time: they count each other's processes
    pytest.mark.enable_socket,
    pytest.mark.timeout(300),
]


@pytest.fixture(autouse=True)
def _podman() -> None:
    needs_podman()


@pytest.fixture
def memory() -> Iterator[Path]:
    root = make_root(MEMORY)
    yield root
    remove_all(root)


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    command: Sequence[str] = SLEEPER,
    prefix: Path = PREFIX,
    options: PodmanOptions | None = None,
    limits: Limits | None = None,
) -> AsyncGenerator[PodmanYard]:
    site = folder.with_name("site")
    site.mkdir(exist_ok=True)
    yard = PodmanYard(folder=folder, command=command, site=site, prefix=prefix, options=options, limits=limits)
    try:
        yield yard
    finally:
        await asyncio.to_thread(yard.close)


async def answers(container: PodmanContainer) -> bool:
    """Whether its agent is there to talk to."""
    (await container.connect()).close()
    return True


def family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        found += children_of(parent)
    return found


def told(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def status(pid: int, field: str) -> str:
    lines = told(pid, "status").splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))


def groups_of(owner: str) -> list[Path]:
    """Control groups that carry a mark, of both versions."""
    return [path for path in Path("/sys/fs/cgroup").rglob(f"{NAME_PREFIX}{owner}-*") if path.is_dir()]


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


# ── saving and opening ────────────────────────────────────────────────────────


@pytest.fixture(params=[Runtime.RUNC, Runtime.CRUN])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    lack = podman_lacking(prefix=PREFIX, runtime=request.param)
    if not lack.ok:
        pytest.skip(lack.reason)
    return request.param


@pytest.mark.parametrize("compression", list(Compression))
async def test_an_image_outlives_its_yard_and_opens_in_another(
    memory: Path, compression: Compression, runtime: Runtime
) -> None:
    options = PodmanOptions(runtime=runtime, compression=compression)
    image = memory / "image"
    async with opened(memory / "first", options=options) as yard:
        container = await yard.started()
        assert await answers(container)
        await container.freeze(image)
        assert await answers(container)
        build = yard.build
        await container.end()
    async with opened(memory / "second", options=options) as yard:
        assert yard.build == build
        copies = [await yard.thawed(image) for _ in range(2)]
        assert all([await answers(copy) for copy in copies])
        await copies[0].freeze(memory / "again")
        assert await answers(await yard.thawed(memory / "again"))
    packed = (image / ARCHIVE).read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert packed == (compression is Compression.ZSTD)


TALKER = """
import http.client
talk = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
count = 0
while True:
    talk.request("GET", "/")
    talk.getresponse().read()
    count += 1
    with open("/tmp/count", "w") as file:
        file.write(str(count))
"""


async def test_a_connection_over_the_loopback_goes_on_in_a_copy(memory: Path, runtime: Runtime) -> None:
    options = PodmanOptions(runtime=runtime)
    async with opened(memory / "yard", command=["python3", "-c", TALKER], options=options) as yard:
        first = await yard.started()
        await answers(first)
        assert eventually(lambda: count_of(first) > 10)
        await first.freeze(memory / "image")
        reached = count_of(first)
        copy = await yard.thawed(memory / "image")
        before = count_of(copy)
        assert before > 0
        assert eventually(lambda: count_of(copy) > before + 10)
        assert eventually(lambda: count_of(first) > reached + 10)


def count_of(container: PodmanContainer) -> int:
    try:
        return int(told(container.pid, "root/tmp/count") or 0)
    except FileNotFoundError:
        return 0


async def test_a_container_has_no_rights_and_no_network_but_its_own_loopback(memory: Path) -> None:
    async with opened(memory / "yard") as yard:
        first = await yard.started()
        await answers(first)
        await first.freeze(memory / "image")
        for container in (first, await yard.thawed(memory / "image")):
            for pid in family(container.pid):
                assert int(status(pid, "CapEff"), 16) == int(status(pid, "CapBnd"), 16) == 0
                assert status(pid, "NoNewPrivs") == "1"
                assert status(pid, "Seccomp") == "2"
            interfaces = told(container.pid, "net/dev").splitlines()[2:]
            assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
            written = [line.split() for line in told(container.pid, "mounts").splitlines()]
            assert {kind for _, place, kind, flags, *_ in written if "ro" in flags.split(",") and place == "/"} == {
                "overlay"
            }


async def test_every_process_of_a_container_is_within_its_limits_once_it_is_thawed(memory: Path) -> None:
    async with opened(memory / "yard", limits=Limits(memory=200 << 20, processes=77)) as yard:
        first = await yard.started()
        await answers(first)
        await first.freeze(memory / "image")
        for container in (first, await yard.thawed(memory / "image")):
            members = family(container.pid)
            assert len(members) > 1
            lines = [told(pid, "cgroup") for pid in members]
            assert len(set(lines)) == 1
            assert 77 in pid_limits(lines[0])


def pid_limits(groups: str) -> set[int]:
    """Of the groups in a process's list, whichever version sets them."""
    root = Path("/sys/fs/cgroup")
    found: set[int] = set()
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        for base in (root, root / "pids") if controllers in {"", "pids"} else ():
            limit = base / path.lstrip("/") / "pids.max"
            if limit.is_file() and limit.read_text().strip().isdigit():
                found.add(int(limit.read_text()))
    return found


# ── endings ───────────────────────────────────────────────────────────────────


async def test_an_ended_container_and_a_closed_yard_leave_nothing(memory: Path) -> None:
    before = mounts()
    async with opened(memory / "yard") as yard:
        container = await yard.started()
        await answers(container)
        owner = mark_in(told(container.pid, "cgroup"))
        members = family(container.pid)
        await container.end()
        await container.end()
        assert not any(lives(pid) for pid in members)
        with pytest.raises(SessionError, match="has been ended"):
            await container.connect()
    assert not (memory / "yard").exists()
    assert groups_of(owner) == []
    assert mounts() == before


async def test_a_container_whose_program_has_ended_is_an_error_not_a_wait(memory: Path) -> None:
    async with opened(memory / "yard") as yard:
        container = await yard.started()
        await answers(container)
        os.kill(container.pid, signal.SIGKILL)
        assert eventually(lambda: not lives(container.pid))
        with pytest.raises(SessionError, match="the container ended"):
            await container.connect()
        with pytest.raises(SessionError, match="could not be saved"):
            await container.freeze(memory / "image")
        await container.end()


async def test_namespaces_that_somebody_ended_are_made_anew(memory: Path) -> None:
    async with opened(memory / "yard") as yard:
        container = await yard.started()
        await answers(container)
        keeper = next(pid for pid in ancestors(container.pid) if told(pid, "comm") == "cat\n")
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(SessionError):
            await container.freeze(memory / "image")
        await container.end()
        assert eventually(lambda: not Path(f"/proc/{keeper}/ns/mnt").exists())
        assert await answers(await yard.started())


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(status(pid, "PPid"))


async def test_criu_killed_in_the_middle_ends_that_container_and_no_other(memory: Path) -> None:
    deadly = memory / "deadly"
    prefix = mortal_prefix(memory / "prefix", deadly)
    async with opened(memory / "yard", prefix=prefix) as yard:
        victim, other = await yard.started(), await yard.started()
        await answers(victim)
        deadly.touch()
        with pytest.raises(SessionError, match="could not be saved"):
            await victim.freeze(memory / "image")
        deadly.unlink()
        with pytest.raises(SessionError, match="has been ended"):
            await victim.connect()
        assert not lives(victim.pid)
        await other.freeze(memory / "good")
        deadly.touch()
        with pytest.raises(SessionError, match="could not be restored"):
            await yard.thawed(memory / "good")
        deadly.unlink()
        assert await answers(await yard.thawed(memory / "good"))


def mortal_prefix(folder: Path, deadly: Path) -> Path:
    """The prefix, with a criu that is killed at once for as long as the file `deadly` is there."""
    (folder / "criu" / "bin").mkdir(parents=True)
    (folder / "rootfs").symlink_to(PREFIX / "rootfs")
    criu, real = folder / "criu" / "bin" / "criu", PREFIX / "criu" / "bin" / "criu"
    criu.write_text(f'#!/bin/sh\n[ -e "{deadly}" ] && [ "$1" = swrk ] && kill -KILL $$\nexec {real} "$@"\n')
    criu.chmod(0o755)
    return folder


@pytest.fixture
def small(memory: Path) -> Iterator[Path]:
    """A tmpfs of one megabyte."""
    folder = memory / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "cairn-test", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_an_image_that_does_not_fit_is_refused_and_the_container_goes_on(memory: Path, small: Path) -> None:
    async with opened(memory / "yard") as yard:
        container = await yard.started()
        await answers(container)
        with pytest.raises(DeclinedError, match="no space left"):
            await container.freeze(small / "image")
        assert await answers(container)
        await container.freeze(memory / "image")


async def test_an_image_below_run_is_refused_because_podman_has_one_of_its_own(memory: Path) -> None:
    async with opened(memory / "yard") as yard:
        container = await yard.started()
        with pytest.raises(DeclinedError, match="keep images elsewhere"):
            await container.freeze(Path("/run/cairn-test-image"))
        assert await answers(container)


# ── owners that die ───────────────────────────────────────────────────────────

OWNER = """
import asyncio, sys
from pathlib import Path
from cairn.scratch import make_root, mark
from cairn.snapshots.containers.podman import PodmanYard

async def main():
    root = make_root(Path("/dev/shm"))
    (root / "site").mkdir()
    yard = PodmanYard(folder=root / "yard", command=["sleep", "1000"], site=root / "site")
    first = await yard.started()
    (await first.connect()).close()
    await first.freeze(root / "image")
    second = await yard.thawed(root / "image")
    print(mark(), root, first.pid, second.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A process with two containers."""

    process: subprocess.Popen[str]
    mark: str
    root: Path
    members: tuple[int, ...]  # everything that descends from it

    def gone(self) -> bool:
        return not any(Path(f"/proc/{pid}/cmdline").exists() and alive(pid) for pid in self.members)


def alive(pid: int) -> bool:
    try:
        return status(pid, "State")[0] not in "ZX"
    except (OSError, StopIteration):
        return False


@pytest.fixture
def doomed() -> Iterator[Doomed]:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner, root, *_ = process.stdout.readline().split()
        yield Doomed(process=process, mark=owner, root=Path(root), members=tuple(family(process.pid)[1:]))
        process.kill()
    clean(leftovers())


def test_an_owner_that_is_killed_takes_its_containers_along(doomed: Doomed) -> None:
    before = mounts()
    assert len(doomed.members) > 4
    doomed.process.kill()
    doomed.process.wait()
    assert eventually(doomed.gone)
    assert eventually(lambda: not (doomed.root / "yard").exists())
    assert eventually(lambda: not [path for path in groups_of(doomed.mark) if "unified" in path.parts])
    assert clean(leftovers()) == ()
    assert groups_of(doomed.mark) == []
    assert not doomed.root.exists()
    assert mounts() == before


def test_an_owner_and_its_helpers_killed_at_once_leave_nothing_after_the_next_start(doomed: Doomed) -> None:
    helpers = children_of(doomed.process.pid)
    for pid in (doomed.process.pid, *helpers):
        os.kill(pid, signal.SIGKILL)
    doomed.process.wait()
    assert eventually(doomed.gone)
    assert groups_of(doomed.mark)  # nobody was left to remove them
    assert clean(leftovers()) == ()
    assert groups_of(doomed.mark) == []
    assert not doomed.root.exists()
