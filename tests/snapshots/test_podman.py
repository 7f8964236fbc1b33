"""Podman's store without Podman: its command lines, and what becomes of each of its failures."""

import itertools
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cairn.errors import SessionError, SetupError
from cairn.snapshots.containers.criu import DeclinedError
from cairn.snapshots.containers.empty_image import NAME, write_image
from cairn.snapshots.containers.podman import PodmanOptions, PodmanYard
from cairn.snapshots.containers.podman_host import Runtime, find_runtime, podman_lacking
from cairn.snapshots.containers.podman_program import (
    ARCHIVE,
    Compression,
    Podman,
    Settings,
    checkpoint_arguments,
    restore_arguments,
    start_arguments,
)
from cairn.snapshots.containers.yard import Limits

IDENTITY = "0123456789abcdef"
IN_FLIGHT = "(00.1) Error (criu/sk-inet.c:191): inet: In-flight connection (l) for 7\n(00.2) Error: Dumping FAILED.\n"
ENDING = "(00.1) Error (criu/seize.c:882): Zombies with threads are not supported\n(00.2) Error: Dumping FAILED.\n"
REFUSED = "(00.0) Error (criu/util.c:1): rlimit: no\n(00.1) Error (criu/fsnotify.c:2): no such watch\nDumping FAILED.\n"
CUT_SHORT = "(00.1) Dumping pages\n"
SAVED = "(00.9) Dumping finished successfully\n"


class Scripted:
    """A keeper whose commands end as they are told to: exit status, what is said, what criu notes down."""

    def __init__(self, folder: Path, *endings: tuple[int, str, str]) -> None:
        self.pid = 1
        self.alive = True
        self.commands: list[list[str]] = []
        self.environment: Mapping[str, str] = {}
        self._log = folder / "storage" / "overlay-containers" / IDENTITY / "userdata" / "dump.log"
        self._log.parent.mkdir(parents=True)
        self._endings = list(endings)

    async def run(self, command: Sequence[str], *, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
        self.commands.append(list(command))
        self.environment = environment
        code, said, noted = self._endings.pop(0)
        self._log.write_text(noted)
        return code, said


def podman(keeper: Scripted, folder: Path, *, compression: Compression = Compression.NONE) -> Podman:
    settings = Settings(folder=folder, criu=Path("/opt/criu/bin"), runtime=Path("/opt/runc"))
    return Podman(keeper=keeper, settings=settings, compression=compression)


def after(arguments: Sequence[str], option: str) -> list[str]:
    """What follows an option, each time that it comes."""
    return [value for name, value in itertools.pairwise(arguments) if name == option]


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def prefix_with(folder: Path) -> Path:
    """A prefix as scripts/setup-snapshots leaves it, as far as anybody looks."""
    program(folder / "criu" / "bin" / "criu", "exit 0")
    (folder / "rootfs").mkdir()
    (folder / "rootfs" / "VERSION").write_text("1")
    return folder


# ── command lines ─────────────────────────────────────────────────────────────


def test_a_container_has_no_network_no_rights_and_nothing_to_write_to_but_memory() -> None:
    arguments = start_arguments("cairn-1", ["agent"], disk=1000, limits=None)
    assert after(arguments, "--network") == ["none"]
    assert after(arguments, "--cap-drop") == ["all"]
    assert "no-new-privileges" in after(arguments, "--security-opt")
    assert "--read-only" in arguments
    assert any(written.startswith("/tmp:") and "size=1000" in written for written in after(arguments, "--tmpfs"))
    assert not {"--volume", "-v", "--mount", "--privileged", "--publish", "-p"} & set(arguments)
    assert arguments[arguments.index(NAME) :][:2] == [NAME, "env"]
    assert arguments[-1] == "agent"


def test_limits_are_podmans_where_it_can_set_them_and_nobody_elses_default() -> None:
    limited = start_arguments("cairn-1", ["agent"], disk=1, limits=Limits(memory=2000, processes=30))
    assert after(limited, "--memory") == ["2000"]
    assert after(limited, "--memory-swap") == ["2000"]
    assert after(limited, "--pids-limit") == ["30"]
    free = start_arguments("cairn-1", ["agent"], disk=1, limits=None)
    assert after(free, "--memory") == []
    assert after(free, "--pids-limit") == ["-1"]


@pytest.mark.parametrize("compression", list(Compression))
def test_an_image_is_exported_while_the_container_goes_on(compression: Compression) -> None:
    arguments = checkpoint_arguments(IDENTITY, Path("/images/a"), compression)
    assert after(arguments, "--export") == [f"/images/a/{ARCHIVE}"]
    assert after(arguments, "--compress") == [compression.value]
    assert "--leave-running" in arguments
    assert arguments[-1] == IDENTITY


def test_each_copy_of_an_image_has_a_name_of_its_own() -> None:
    arguments = restore_arguments("cairn-2", Path("/images/a"))
    assert after(arguments, "--import") == [f"/images/a/{ARCHIVE}"]
    assert after(arguments, "--name") == ["cairn-2"]


async def test_commands_are_run_with_our_storage_our_runtime_and_our_criu(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path, (0, IDENTITY, ""))
    await podman(keeper, tmp_path).start("cairn-1", ["agent"], disk=1, limits=None)
    assert after(keeper.commands[0], "--root") == ["/run/cairn/storage"]
    assert after(keeper.commands[0], "--runtime") == ["/opt/runc"]
    assert keeper.environment["PATH"].startswith("/opt/criu/bin:")
    assert keeper.environment["CONTAINERS_CONF"].startswith(str(tmp_path))


def test_settings_reach_the_monitors_that_restore_containers(tmp_path: Path) -> None:
    Settings(folder=tmp_path, criu=Path("/opt/criu/bin"), runtime=Path("/opt/runc")).write()
    told = (tmp_path / "containers.conf").read_text()
    assert '"PATH=/opt/criu/bin:' in told
    assert 'lock_type = "file"' in told  # locks in memory would be shared with an operator's Podman
    assert "manage-cgroups=ignore" in (tmp_path / "criu.conf").read_text()


@pytest.mark.parametrize(("answer", "lock"), [("exit 0", "nftables"), ("exit 1", "skip")])
def test_the_network_is_held_still_where_the_kernel_can_do_it(tmp_path: Path, answer: str, lock: str) -> None:
    program(tmp_path / "bin" / "criu", f'[ "$*" = "check --feature network_lock_nftables" ] || exit 2\n{answer}')
    Settings(folder=tmp_path, criu=tmp_path / "bin", runtime=Path("/opt/runc")).write()
    assert f"network-lock {lock}\n" in (tmp_path / "criu.conf").read_text()


def test_the_empty_image_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    write_image(tmp_path / "one.tar")
    write_image(tmp_path / "other.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "other.tar").read_bytes()


# ── failures ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("noted", "told"), [(IN_FLIGHT, "In-flight"), (ENDING, "Zombies")])
async def test_what_is_over_in_a_moment_is_waited_for_up_to_five_times(tmp_path: Path, noted: str, told: str) -> None:
    keeper = Scripted(tmp_path, *[(1, "failed", noted)] * 4, (0, IDENTITY, SAVED))
    assert await podman(keeper, tmp_path).checkpoint(IDENTITY, tmp_path) == 5
    keeper = Scripted(tmp_path / "b", *[(1, "failed", noted)] * 5)
    with pytest.raises(DeclinedError, match=rf"attempt 5: .*{told}"):
        await podman(keeper, tmp_path / "b").checkpoint(IDENTITY, tmp_path)
    assert len(keeper.commands) == 5


async def test_what_criu_refuses_is_told_once_and_the_container_goes_on(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path, (125, "exit status 1", REFUSED))
    with pytest.raises(DeclinedError, match=r"attempt 1: .*no such watch") as raised:
        await podman(keeper, tmp_path).checkpoint(IDENTITY, tmp_path)
    assert "rlimit" not in str(raised.value)


async def test_an_archive_that_could_not_be_written_leaves_the_container_as_it_was(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path, (125, "Error: write container.tar: no space left on device", SAVED))
    with pytest.raises(DeclinedError, match="no space left"):
        await podman(keeper, tmp_path).checkpoint(IDENTITY, tmp_path)


async def test_after_criu_was_cut_short_nobody_knows_how_the_container_is(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path, (125, "Error: runc checkpoint failed: signal: killed", CUT_SHORT))
    with pytest.raises(SessionError, match="signal: killed") as raised:
        await podman(keeper, tmp_path).checkpoint(IDENTITY, tmp_path)
    assert not isinstance(raised.value, DeclinedError)


async def test_a_container_that_podman_cannot_make_is_an_error_with_its_words(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path, (126, "Error: OCI permission denied", ""))
    with pytest.raises(SessionError, match="could not be started: Error: OCI permission denied"):
        await podman(keeper, tmp_path).start("cairn-1", ["agent"], disk=1, limits=None)
    (tmp_path / ARCHIVE).write_bytes(b"")
    keeper = Scripted(tmp_path / "b", (125, "Error: out of memory", ""))
    with pytest.raises(SessionError, match="could not be restored: Error: out of memory"):
        await podman(keeper, tmp_path / "b").restore("cairn-1", tmp_path)


async def test_an_image_without_its_archive_is_named(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path)
    with pytest.raises(SessionError, match=rf"no container in {tmp_path}: {ARCHIVE} is missing"):
        await podman(keeper, tmp_path).restore("cairn-1", tmp_path)


async def test_without_its_namespaces_podman_is_asked_for_nothing(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path)
    keeper.alive = False
    with pytest.raises(SessionError, match="namespaces have ended"):
        await podman(keeper, tmp_path).start("cairn-1", ["agent"], disk=1, limits=None)
    await podman(keeper, tmp_path).remove("cairn-1")
    assert keeper.commands == []


def test_a_container_that_has_no_process_any_more_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    keeper = Scripted(tmp_path)
    keeper.pid = 2**31 - 1
    (tmp_path / "storage" / "overlay-containers" / IDENTITY / "userdata" / "ctr.log").write_text("no such browser")
    with pytest.raises(SessionError, match="the container ended: no such browser"):
        podman(keeper, tmp_path).first_process(IDENTITY)


# ── this host ─────────────────────────────────────────────────────────────────


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of root's with nothing on its path; the folder that is the path."""
    monkeypatch.setattr("cairn.snapshots.containers.podman_host._SYSTEM_PATH", "")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def with_tools(folder: Path, *, podman_too: bool = True) -> None:
    for tool in ("conmon", "nsenter", "unshare", "mount", "find", "ip", *(("podman",) if podman_too else ())):
        program(folder / tool, "exit 0")


def test_a_host_without_podman_is_told_to_run_the_setup(bare: Path, tmp_path: Path) -> None:
    with_tools(bare, podman_too=False)
    lack = podman_lacking(prefix=prefix_with(tmp_path / "prefix"))
    assert not lack.ok
    assert lack.reason == "the program podman is missing"
    assert lack.fix == "run scripts/setup-snapshots"


def test_without_a_prefix_the_setup_has_not_been_run(bare: Path, tmp_path: Path) -> None:
    lack = podman_lacking(prefix=tmp_path)
    assert not lack.ok
    assert str(tmp_path) in lack.reason
    assert "setup-snapshots" in lack.fix


def test_others_than_root_are_told_what_to_use_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    lack = podman_lacking(prefix=tmp_path)
    assert not lack.ok
    assert "root" in lack.reason
    assert "native or replay" in lack.fix


@pytest.mark.parametrize(
    ("runc", "crun", "wanted", "found"),
    [
        ("exit 0", "exit 0", Runtime.AUTO, "runc"),
        ("exit 1", "exit 0", Runtime.AUTO, "crun"),
        ("exit 0", "exit 0", Runtime.CRUN, "crun"),
        ("exit 0", "exit 1", Runtime.RUNC, "runc"),
    ],
)
def test_the_runtime_is_the_wanted_one_or_the_first_that_can_save(
    bare: Path, tmp_path: Path, runc: str, crun: str, wanted: Runtime, found: str
) -> None:
    program(bare / "runc", runc)
    program(bare / "crun", crun)
    assert find_runtime(wanted, prefix=tmp_path) == bare / found


def test_a_runtime_of_the_prefix_comes_before_the_hosts(bare: Path, tmp_path: Path) -> None:
    program(bare / "crun", "exit 1")
    own = program(tmp_path / "crun" / "bin" / "crun", "exit 0")
    assert find_runtime(Runtime.CRUN, prefix=tmp_path) == own


def test_a_runtime_that_cannot_save_is_named_with_the_one_that_can(bare: Path, tmp_path: Path) -> None:
    with_tools(bare)
    crun = program(bare / "crun", "exit 1")
    lack = podman_lacking(prefix=prefix_with(tmp_path / "prefix"), runtime=Runtime.CRUN)
    assert not lack.ok
    assert f"{crun} was built without criu" in lack.reason
    assert lack.fix.startswith("choose the runtime runc")


def test_a_host_that_has_everything_lacks_nothing(bare: Path, tmp_path: Path) -> None:
    with_tools(bare)
    program(bare / "runc", "exit 0")
    assert podman_lacking(prefix=prefix_with(tmp_path / "prefix")).ok


async def test_a_yard_on_a_host_that_lacks_something_says_so_in_one_sentence(bare: Path, tmp_path: Path) -> None:
    yard = PodmanYard(folder=tmp_path / "yard", command=["browser"], site=tmp_path, prefix=tmp_path / "nowhere")
    with pytest.raises(SetupError, match=r"Podman cannot keep states here: .*nowhere; run scripts/setup-snapshots"):
        await yard.started()
    assert not (tmp_path / "yard").exists()
    yard.close()


def test_an_image_of_one_runtime_is_of_another_build_for_the_other(bare: Path, tmp_path: Path) -> None:
    program(bare / "runc", "exit 0")
    program(bare / "crun", "exit 0")
    prefix = prefix_with(tmp_path / "prefix")

    def build(runtime: Runtime) -> str:
        options = PodmanOptions(runtime=runtime)
        return PodmanYard(
            folder=tmp_path / "yard", command=["browser"], site=tmp_path / "bin", prefix=prefix, options=options
        ).build

    assert build(Runtime.RUNC) != build(Runtime.CRUN)
    assert build(Runtime.AUTO) == build(Runtime.RUNC)


def test_the_script_that_holds_the_namespaces_is_one_that_a_shell_can_read() -> None:
    script = Path(__file__).parents[2] / "src" / "cairn" / "snapshots" / "containers" / "podman.sh"
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
