"""Limits of a container's memory and processes, through whichever control groups this host has."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.scratch import PREFIX, mark

ROOT = Path("/sys/fs/cgroup")
_REMOVAL_SECONDS = 10.0
_PAUSE = 0.005
_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Folders of the control groups of one container: one under cgroup v2, one for each controller under v1."""

    folders: tuple[Path, ...]
    unlimited: tuple[str, ...]
    """What this host lets nobody limit: "memory", "pids", both, or nothing."""

    outside: Path
    """The group that this process's own memory counts in."""

    @classmethod
    def make(cls, *, memory: int, processes: int, root: Path = ROOT) -> "ControlGroup":
        """New groups with these limits, in bytes and processes; none where this host lets nobody make them.

        Their names carry this process's mark.
        """
        name = f"{PREFIX}{mark()}-{secrets.token_hex(4)}"
        second = (root / "cgroup.controllers").exists()
        if second:
            _hand_down(root)
        made: list[Path] = []
        unlimited: list[str] = []
        for controller in _CONTROLLERS:
            folder = root / name if second else root / controller / name
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                made.append(folder)
            if not _limited(folder, controller, memory if controller == "memory" else processes):
                unlimited.append(controller)
        return cls(folders=tuple(dict.fromkeys(made)), unlimited=tuple(unlimited), outside=_own(root, second=second))

    def joining(self, command: Sequence[str]) -> list[str]:
        """The command that runs `command` as a member."""
        if not self.folders:
            return list(command)
        script = "".join(f"echo 0 >{folder / 'cgroup.procs'}; " for folder in self.folders)
        return ["sh", "-c", f'{script}exec "$@"', "join", *command]

    def remove(self) -> None:
        """Kill every member that there is, and wait until nothing is left. Idempotent."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        for folder in self.folders:
            while not _removed(folder) and time.monotonic() < deadline:
                kill_members(folder)
                time.sleep(_PAUSE)


def unlimited_here(root: Path = ROOT) -> tuple[str, ...]:
    """What of containers this host lets nobody limit: "memory", "pids", both, or nothing."""
    probe = ControlGroup.make(memory=1 << 30, processes=1 << 10, root=root)
    probe.remove()
    return probe.unlimited


def kill_members(folder: Path) -> None:
    """End every process of a group, those included that its processes are about to start."""
    _written(folder / "pids.max", 0)
    for member in members(folder):
        with contextlib.suppress(OSError):
            os.kill(member, signal.SIGKILL)


def remove_group(folder: Path) -> None:
    """Kill what is in a group and in those inside it, and remove them as far as they are empty by now."""
    inside = sorted(path for path in folder.rglob("*") if path.is_dir())
    for path in (*reversed(inside), folder):
        kill_members(path)
        with contextlib.suppress(OSError):
            path.rmdir()


def members(folder: Path) -> Sequence[int]:
    """Processes of a group; one of another namespace of process numbers is left out."""
    try:
        return [
            int(member) for member in (folder / "cgroup.procs").read_text(encoding="ascii").split() if member != "0"
        ]
    except OSError:
        return []


def marked_groups(root: Path = ROOT) -> Iterator[Path]:
    """Every group on this host that carries a process's mark; "unified" is version 2 beside version 1."""
    for base in (root, root / "unified", *(root / controller for controller in _CONTROLLERS)):
        yield from base.glob(f"{PREFIX}*-*-*-*")


def _limited(folder: Path, controller: str, limit: int) -> bool:
    """Set a limit; whether it holds."""
    if controller == "pids":
        return _written(folder / "pids.max", limit)
    held = _written(folder / "memory.max", limit) or _written(folder / "memory.limit_in_bytes", limit)
    # not every kernel counts what is swapped out
    _written(folder / "memory.swap.max", 0)
    _written(folder / "memory.memsw.limit_in_bytes", limit)
    return held


def _written(file: Path, value: int) -> bool:
    """Whether the group has such a file and took the value."""
    try:
        with file.open("r+", encoding="ascii") as opened:
            opened.write(str(value))
    except OSError:
        return False
    return True


def _hand_down(root: Path) -> None:
    """Let groups below `root` have the controllers, where nobody has done that."""
    for controller in _CONTROLLERS:
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def _own(root: Path, *, second: bool) -> Path:
    """The folder of this process's own group, for memory."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" if second else "memory" in controllers.split(","):
            return (root if second else root / "memory") / path.lstrip("/")
    return root


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
