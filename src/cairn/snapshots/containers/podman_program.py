"""Podman's command lines, and what its failures mean."""

import asyncio
import json
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from cairn.errors import SessionError
from cairn.scratch import OWNER_VARIABLE, mark
from cairn.snapshots.containers.criu import DeclinedError, declined_for_now, network_lock
from cairn.snapshots.containers.empty_image import NAME as IMAGE
from cairn.snapshots.containers.family import children_of
from cairn.snapshots.containers.yard import Limits

ARCHIVE = "container.tar"
"""In an image: what Podman exported."""

# the same for every owner, below the /run of the keeper's own
_STORAGE = "/run/cairn/storage"
_CRIU_SETTINGS = "/run/cairn/criu.conf"
_GROUP = "/containers"

# of /sys everything; not as a whole, for crun cannot restore a mount below a folder that is masked
_MASKED = ":".join(
    f"/sys/{folder}"
    for folder in ("block", "bus", "class", "dev", "devices", "firmware", "fs/cgroup", "kernel", "module", "power")
)

_START_SECONDS = 60.0
_SAVE_SECONDS = 90.0
_REMOVE_SECONDS = 30.0
_ATTEMPTS = 5
_PAUSE = 0.02
_UNHARMED = ("Dumping FAILED", "Dumping finished successfully")
"""What criu says last, when the container goes on as it was."""

_SETTINGS = """\
[containers]
log_size_max = 1048576
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
runtime = {runtime}
conmon_env_vars = [{variables}]
[network]
network_config_dir = "/run/cairn/networks"
"""
_STORAGE_SETTINGS = """\
[storage]
driver = "overlay"
graphroot = "{storage}"
runroot = "/run/podman"
[storage.options.overlay]
skip_mount_home = "true"
"""
# control groups stay as the runtime makes them, and criu finds no others than those that it knows
_CRIU = "network-lock {lock}\ntcp-established\nfile-locks\nghost-limit 64M\nmanage-cgroups=ignore\n"
_HOOKS = "/run/cairn/hooks"
_HOOK = {
    "version": "1.0.0",
    "hook": {"path": "/run/cairn/loopback.sh"},
    "when": {"always": True},
    "stages": ["createRuntime"],
}
_ANYTHING = {"default": [{"type": "insecureAcceptAnything"}]}  # the one image is our own


class Compression(StrEnum):
    """Of saved containers."""

    NONE = "none"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Files that Podman and criu are told to read, in a yard's folder."""

    folder: Path
    criu: Path  # the program's folder
    runtime: Path

    def write(self) -> None:
        """Put them there."""
        variables = ", ".join(json.dumps(f"{name}={value}") for name, value in self.environment.items())
        self._containers.write_text(
            _SETTINGS.format(runtime=json.dumps(str(self.runtime)), variables=variables), encoding="utf-8"
        )
        self._storage.write_text(_STORAGE_SETTINGS.format(storage=_STORAGE), encoding="utf-8")
        (self.folder / "criu.conf").write_text(_CRIU.format(lock=network_lock(self.criu / "criu")), encoding="utf-8")
        (self.folder / "policy.json").write_text(json.dumps(_ANYTHING), encoding="utf-8")
        (self.folder / "hook.json").write_text(json.dumps(_HOOK), encoding="utf-8")
        shutil.rmtree(self.folder / "storage", ignore_errors=True)
        (self.folder / "storage").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """What every command is run with. Runtimes look for criu on the path."""
        return {
            "PATH": f"{self.criu}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/run/cairn",
            "CONTAINERS_CONF": str(self._containers),
            "CONTAINERS_STORAGE_CONF": str(self._storage),
            OWNER_VARIABLE: mark(),
        }

    @property
    def command(self) -> list[str]:
        """Podman, with the places that are our own; it hands them to its monitors."""
        return [
            "podman", "--root", _STORAGE, "--runroot", "/run/podman", "--tmpdir", "/run/libpod",
            "--storage-driver", "overlay", "--storage-opt", "overlay.skip_mount_home=true",
            "--runtime", str(self.runtime), "--hooks-dir", _HOOKS,
        ]  # fmt: skip

    @property
    def _containers(self) -> Path:
        return self.folder / "containers.conf"

    @property
    def _storage(self) -> Path:
        return self.folder / "storage.conf"


class Namespaces(Protocol):
    """Where commands are run, as in `Keeper`."""

    pid: int

    @property
    def alive(self) -> bool: ...

    async def run(
        self, command: Sequence[str], *, environment: Mapping[str, str], seconds: float
    ) -> tuple[int, str]: ...


class Podman:
    """The program, with a storage of its own, in the namespaces of a keeper."""

    def __init__(self, *, keeper: Namespaces, settings: Settings, compression: Compression) -> None:
        self._keeper = keeper
        self._settings = settings
        self._compression = compression

    @property
    def alive(self) -> bool:
        """Whether there is anything left to run commands in."""
        return self._keeper.alive

    async def start(self, name: str, command: Sequence[str], *, disk: int, limits: Limits | None) -> str:
        """A new container that runs `command`; its id. `limits` are left to others where there are none."""
        return await self._made("started", start_arguments(name, command, disk=disk, limits=limits))

    async def restore(self, name: str, image: Path) -> str:
        """A new container in the state of an image; its id."""
        if not (image / ARCHIVE).is_file():
            raise SessionError(f"there is no container in {image}: {ARCHIVE} is missing")
        return await self._made("restored", restore_arguments(name, image))

    async def checkpoint(self, identity: str, image: Path) -> int:
        """Write a running container to a new file in `image`. Attempts that it took.

        Raises `DeclinedError` where the container is as it was; after any other error that is not certain.
        """
        command = checkpoint_arguments(identity, image, self._compression)
        for attempt in range(1, _ATTEMPTS + 1):
            code, said = await self._run(command, seconds=_SAVE_SECONDS)
            if code == 0:
                return attempt
            log = self._log_of_dump(identity)
            if not any(ending in log for ending in _UNHARMED):
                raise SessionError(f"the container could not be saved: {_last(said)}")
            if not declined_for_now(log) or attempt == _ATTEMPTS:
                raise DeclinedError(
                    f"the container could not be saved, attempt {attempt}: {_errors(log) or _last(said)}"
                )
            await asyncio.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def remove(self, name: str) -> None:
        """Kill it, and wait until nothing of it is left. Idempotent."""
        if self._keeper.alive:
            await self._run(["rm", "--force", "--time", "0", "--ignore", name], seconds=_REMOVE_SECONDS)

    def first_process(self, identity: str) -> int:
        """Of a container that runs, on this host: what its monitor has started."""
        for monitor in children_of(self._keeper.pid):
            told = Path(f"/proc/{monitor}/cmdline").read_bytes().split(b"\0")
            if told[0].endswith(b"conmon") and identity.encode() in told:
                for child in children_of(monitor):
                    return child
        raise SessionError(f"the container ended: {self.last_words(identity)}")

    def group_of(self, pid: int) -> Path:
        """The control group of version 2 that Podman has put a process into."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise SessionError("the container ended as soon as it had begun") from error
        own = next((line for line in lines if line.startswith("0::")), "")
        _, found, below = own.partition(_GROUP)  # the path is from this host's root; the keeper's is further down
        if not found:
            raise SessionError(f"Podman has put the container into no group of its own, but into {own or 'none'}")
        return Path(f"/proc/{self._keeper.pid}/root/sys/fs/cgroup{_GROUP}{below}")

    def last_words(self, identity: str) -> str:
        """What a container said before it ended."""
        return _tail(self._data(identity) / "ctr.log")

    async def _made(self, how: str, arguments: Sequence[str]) -> str:
        code, said = await self._run(arguments, seconds=_START_SECONDS)
        lines = said.split()
        if code or not lines:
            raise SessionError(f"the container could not be {how}: {_errors(self._log_of_restore()) or _last(said)}")
        return lines[-1]

    async def _run(self, arguments: Sequence[str], *, seconds: float) -> tuple[int, str]:
        if not self._keeper.alive:
            raise SessionError("Podman's namespaces have ended, and all containers with them")
        settings = self._settings
        return await self._keeper.run(
            [*settings.command, *arguments], environment=settings.environment, seconds=seconds
        )

    def _log_of_dump(self, identity: str) -> str:
        return _read(self._data(identity) / "dump.log")

    def _log_of_restore(self) -> str:
        """Of the container that failed last: the others have none, and its id is not told."""
        logs = [(log.stat().st_mtime, log) for log in self._containers.glob("*/userdata/restore.log")]
        return _read(max(logs)[1]) if logs else ""

    def _data(self, identity: str) -> Path:
        return self._containers / identity / "userdata"

    @property
    def _containers(self) -> Path:
        return self._settings.folder / "storage" / "overlay-containers"


def start_arguments(name: str, command: Sequence[str], *, disk: int, limits: Limits | None) -> list[str]:
    """Everything that the container may write lies in its memory, because criu saves that while it is frozen."""
    held = ["--memory", str(limits.memory), "--memory-swap", str(limits.memory)] if limits else []
    return [
        "run", "--detach", "--name", name, "--pull", "never", "--hostname", "cairn",
        "--network", "none", "--no-hosts", "--ipc", "none", "--cgroupns", "host", "--cgroup-parent", _GROUP,
        "--read-only", "--read-only-tmpfs=false",
        "--tmpfs", f"/tmp:rw,nosuid,nodev,size={disk},mode=1777",  # noqa: S108 - inside the container
        "--tmpfs", "/run:rw,nosuid,nodev,size=1m,mode=755",
        "--tmpfs", "/dev/shm:rw,nosuid,nodev,size=16m,mode=1777",  # noqa: S108 - inside the container
        *held, "--pids-limit", str(limits.processes) if limits else "-1",
        # the hard limits of this process: a host may let nobody raise them
        *(f"--ulimit={kind}={count}:{count}" for kind, count in _limits_here()),
        "--cap-drop", "all", "--cap-add", "SETUID,SETGID,SETPCAP",  # the agent needs these to give them up
        "--security-opt", "no-new-privileges", "--security-opt", "seccomp=unconfined",  # the agent has its own filter
        "--security-opt", f"mask={_MASKED}", "--security-opt", "proc-opts=ro,nosuid,nodev,noexec",
        "--annotation", f"org.criu.config={_CRIU_SETTINGS}",
        "--log-driver", "k8s-file", IMAGE,
        "env", "-i", "PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "LANGUAGE=en_US", "TZ=UTC", *command,
    ]  # fmt: skip


def restore_arguments(name: str, image: Path) -> list[str]:
    """The container has a name of its own, and an id."""
    return ["container", "restore", "--import", str(image / ARCHIVE), "--name", name, "--ignore-rootfs"]


def checkpoint_arguments(identity: str, image: Path, compression: Compression) -> list[str]:
    """The root file system is read-only, so that none of it belongs into an image."""
    return [
        "container", "checkpoint", "--leave-running", "--export", str(image / ARCHIVE),
        "--compress", compression, "--ignore-rootfs", "--ignore-volumes", identity,
    ]  # fmt: skip


def _limits_here() -> list[tuple[str, int]]:
    kinds = (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    return [(name, resource.getrlimit(kind)[1]) for name, kind in kinds]


def _last(said: str) -> str:
    return " ".join(said.split())[-400:] or "nothing says why"


def _errors(log: str) -> str:
    """The first two, which the others follow from."""
    lines = [line for line in log.splitlines() if "Error (" in line and "rlimit" not in line]
    return " / ".join(line.partition(") ")[2] or line for line in lines[:2])


def _tail(log: Path) -> str:
    return _last(_read(log)) if log.is_file() else "it left no log"


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
