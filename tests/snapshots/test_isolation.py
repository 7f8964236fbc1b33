"""What code inside a container can reach, with the rights of the browser: nothing but the container."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.scratch import mark
from cairn.snapshot_ports import Container, ContainerYard
from cairn.snapshots.containers.cgroups import ROOT, unlimited_here
from cairn.snapshots.containers.podman import PodmanYard
from cairn.snapshots.containers.yard import PREFIX, Limits
from snapshots.confined import Listeners, inside, living, podman_yard_of, yard_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(240)]
MEGABYTE = 1 << 20
SMALL = Limits(disk=24 * MEGABYTE, memory=160 * MEGABYTE, processes=64)


@pytest.fixture(params=[yard_of, podman_yard_of], ids=["criu", "podman"])
def yard(request: pytest.FixtureRequest) -> Iterator[ContainerYard]:
    with request.param(limits=SMALL) as made:
        yield made


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


def skip_unless_limited(controller: str) -> None:
    if controller in unlimited_here():
        pytest.skip(f"this host has no control group that limits {controller}")


async def test_no_address_of_the_host_can_be_reached(yard: ContainerYard, listeners: Listeners) -> None:
    assert len(listeners.places) >= 1
    container = await yard.started()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0cairn-test-host")
    abstract.listen()
    reached = await inside(
        container,
        f"""
import socket, urllib.request
said = []
for address, port in {listeners.places!r}:
    try:
        socket.create_connection((address, port), timeout=3).close()
        said.append(address)
    except OSError:
        pass
try:
    client = socket.socket(socket.AF_UNIX)
    client.connect("\\0cairn-test-host")
    said.append("an abstract socket")
except OSError:
    pass
said.append(urllib.request.urlopen("http://127.0.0.1:8000/hostile.py", timeout=10).status)
said.append([name for _, name in socket.if_nameindex()])
""",
    )
    abstract.close()
    await container.end()
    assert reached == [200, ["lo"]]  # its own pages alone
    assert listeners.visits == 0


LOOK_AROUND = """
import os
from pathlib import Path
said = [place for place in places if os.path.isfile(place) or (os.path.isdir(place) and os.listdir(place))]
for place in Path("/proc").glob("[0-9]*/environ"):
    if b"SECRET" in place.read_bytes() or b"CAIRN" in place.read_bytes():
        said.append(str(place))
for name in ("root", "cwd"):
    for place in Path("/proc").glob("[0-9]*/" + name):
        if os.stat(place).st_dev != os.stat("/").st_dev:
            said.append(str(place))
for place in Path("/proc").glob("[0-9]*/fd/*"):
    try:
        target = os.readlink(place)
    except OSError:
        continue  # of the directory that was just read
    if target.startswith("/") and not os.path.exists(target) and "/proc/" not in target:
        said.append(f"{place}: {target}")
if any("cairn-test-secret" in Path(place).read_text() for place in ("/etc/shadow", "/etc/passwd", "/proc/cmdline")):
    said.append("the secret")
said.append(sorted(int(place.name) for place in Path("/proc").glob("[0-9]*"))[:1])
"""


async def test_no_file_of_the_host_is_there(
    yard: ContainerYard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_TEST_SECRET", "cairn-test-secret")
    secret = tmp_path / "secret"
    secret.write_text("cairn-test-secret")
    shown = Path("/dev/shm") / f"cairn-test-secret-{os.getpid()}"
    shown.write_text("cairn-test-secret")
    try:
        container = await yard.started()
        places = [str(secret), str(shown), str(PREFIX), __file__, "/old", "/sys/kernel"]
        found = await inside(container, f"places = {places!r}{LOOK_AROUND}")
        shadow = await inside(container, "said = open('/etc/shadow').read()")
        await container.end()
    finally:
        shown.unlink()
    assert found == [[1]]
    assert shadow == (PREFIX / "rootfs" / "root" / "etc" / "shadow").read_text()  # the image's, which anyone can build


async def test_what_is_written_to_system_files_stays_inside(yard: ContainerYard) -> None:
    below = PREFIX / "rootfs" / "root" / "etc" / "passwd"
    before = below.read_bytes()
    one = await yard.started()
    other = await yard.started()
    try:
        written = await inside(one, "said = open('/etc/passwd', 'a').write('#mine')")
        # Podman's have a root file system that nobody can write to
        assert "Read-only" in str(written) if isinstance(yard, PodmanYard) else written == 5
        assert "mine" not in str(await inside(other, "said = open('/etc/passwd').read()"))
    finally:
        await one.end()
        await other.end()
    assert below.read_bytes() == before


REFUSED = {
    "mounts": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "unmounts": "libc.umount2(b'/proc', 2)",
    "another root": "libc.chroot(b'/tmp')",
    "a namespace of users": "libc.unshare(0x10000000)",
    "a child in a namespace of users": "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": "libc.syscall(435, 0, 0)",
    "the host's namespaces": "libc.setns(0, 0)",
    "tracing": "libc.ptrace(16, 1, 0, 0)",
    "another's memory": "libc.syscall(310, 1, 0, 0, 0, 0, 0)",
    "devices": "libc.mknod(b'/tmp/disk', 0o60600, 254 << 8)",
    "modules": "libc.syscall(313, 0, 0, 0)",
    "the other numbering": "libc.syscall(0x40000000 + 39)",
    "inotify": "libc.inotify_init()",
}


async def test_what_could_open_the_box_is_refused(yard: ContainerYard) -> None:
    container = await yard.started()
    calls = "\n".join(f"if {call} >= 0: said.append({name!r})" for name, call in REFUSED.items())
    got = await inside(container, f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nsaid = []\n{calls}")
    rights = await inside(
        container,
        "lines = open('/proc/self/status').readlines()\nwanted = ('CapE', 'CapP', 'CapB', 'NoNe')\n"
        "said = [line.split()[1] for line in lines if line[:4] in wanted]",
    )
    written = await inside(
        container,
        """
said = []
for place in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/1/oom_score_adj", "/proc/self/uid_map"):
    try:
        open(place, "w").write("1")
        said.append(place)
    except OSError:
        pass
""",
    )
    await container.end()
    assert got == []
    assert rights == ["0" * 16] * 3 + ["1"]
    assert written == []


async def test_the_calls_of_another_architecture_are_refused(yard: ContainerYard) -> None:
    """Their numbers mean other things, so no filter of numbers would hold them."""
    container = await yard.started()
    code = """
import ctypes, mmap, os
child = os.fork()
if not child:
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    os._exit(0 if call() < 0 else 7)
said = os.waitpid(child, 0)[1]
"""
    status = await inside(container, code)
    await container.end()
    assert isinstance(status, int)
    assert os.waitstatus_to_exitcode(status) != 7


async def alive(container: Container) -> bool:
    return await inside(container, "said = 'alive'") == "alive"


async def test_a_huge_allocation_ends_its_maker_alone(yard: ContainerYard) -> None:
    skip_unless_limited("memory")
    neighbour, greedy = await yard.started(), await yard.started()
    try:
        with pytest.raises((EOFError, ConnectionError)):  # the program is killed, and its container ends with it
            await inside(greedy, "data = []\nwhile True: data.append(bytearray(b'x' * (1 << 22)))")
        assert await alive(neighbour)
    finally:
        await greedy.end()
        await neighbour.end()


async def test_processes_multiply_up_to_the_limit(yard: ContainerYard) -> None:
    skip_unless_limited("pids")
    neighbour, greedy = await yard.started(), await yard.started()
    try:
        made = await inside(
            greedy,
            """
import os, signal
children = []
try:
    while len(children) < 1000:
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
except OSError:
    pass
for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
said = len(children)
""",
        )
        assert isinstance(made, int)
        assert 10 < made < SMALL.processes
        assert await alive(neighbour)
        assert await alive(greedy)
    finally:
        await greedy.end()
        await neighbour.end()


def own_groups(pid: int) -> list[Path]:
    """The control groups that a process is in by our doing."""
    lines = [line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if mark() in line]
    bases = (ROOT, ROOT / "unified", ROOT / "memory", ROOT / "pids")
    return [group for base in bases for line in lines if (group := base / line.lstrip("/")).exists()]


async def test_a_fork_bomb_ends_with_its_container(yard: ContainerYard) -> None:
    skip_unless_limited("pids")
    container = await yard.started()
    pid = container.pid
    held = own_groups(pid)
    with pytest.raises((TimeoutError, EOFError, ConnectionError)):
        await inside(container, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", seconds=2)
    await container.end()
    assert not living([pid])
    assert held
    assert not [group for group in held if group.exists()]


async def test_files_fill_the_containers_disk_alone(yard: ContainerYard) -> None:
    neighbour, greedy = await yard.started(), await yard.started()
    try:
        written = await inside(
            greedy,
            """
said = 0
try:
    with open("/tmp/fill", "wb", buffering=0) as file:
        while said < 1 << 30:
            said += file.write(bytes(1 << 20))
except OSError as error:
    said = [said >> 20, error.errno]
""",
        )
        assert isinstance(written, list)
        size, number = written
        assert SMALL.disk // 2 < size * MEGABYTE <= SMALL.disk
        assert number == 28  # no space left
        assert await inside(neighbour, "said = open('/tmp/small', 'w').write('fits')") == 4
    finally:
        await greedy.end()
        await neighbour.end()


async def test_branches_of_one_state_do_not_see_each_other(yard: ContainerYard) -> None:
    origin = await yard.started()
    await inside(origin, "open('/tmp/before', 'w').write('shared')")
    await origin.freeze(yard.place("state"))
    one, other = await yard.thawed(yard.place("state")), await yard.thawed(yard.place("state"))
    try:
        said = await inside(
            one,
            """
import builtins, socket
open("/tmp/mine", "w").write("mine")
builtins.kept = [socket.create_server(("127.0.0.1", 9999)), *(socket.socket(socket.AF_UNIX) for _ in range(2))]
kept[1].bind("\\0mine")
kept[2].bind("/tmp/mine.sock")
kept[1].listen(); kept[2].listen()
said = "listening"
""",
        )
        assert said == "listening"
        for branch in (other, origin):
            seen = await inside(
                branch,
                """
import os, socket
said = [open("/tmp/before").read(), os.path.exists("/tmp/mine"), os.path.exists("/tmp/mine.sock")]
for family, address in ((socket.AF_INET, ("127.0.0.1", 9999)), (socket.AF_UNIX, "\\0mine")):
    try:
        socket.socket(family).connect(address)
        said.append("reached")
    except OSError:
        pass
""",
            )
            assert seen == ["shared", False, False]
    finally:
        for container in (origin, one, other):
            await container.end()
