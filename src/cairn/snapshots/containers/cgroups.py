"""Limits of a container's memory and processes, through whichever control groups this host has."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.scratch import PREFIX

_ROOT = Path("/sys/fs/cgroup")
_REMOVALS = 100
_PAUSE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Folders of the control groups of one container: one under cgroup v2, one for each controller under v1."""

    folders: tuple[Path, ...]

    @classmethod
    def make(cls, *, memory: int, processes: int, root: Path = _ROOT) -> "ControlGroup":
        """New groups with these limits, in bytes and processes; none where this host lets nobody make them."""
        name = f"{PREFIX}{secrets.token_hex(4)}"
        if (root / "cgroup.controllers").exists():
            wanted = {root / name: {"memory.max": memory, "memory.swap.max": 0, "pids.max": processes}}
        else:
            wanted = {
                root / "memory" / name: {"memory.limit_in_bytes": memory},
                root / "pids" / name: {"pids.max": processes},
            }
        made: list[Path] = []
        for folder, limits in wanted.items():
            with contextlib.suppress(OSError):
                folder.mkdir()
                made.append(folder)
                for file, value in limits.items():
                    with contextlib.suppress(FileNotFoundError):  # a controller that is switched off
                        (folder / file).write_text(str(value), encoding="ascii")
        return cls(folders=tuple(made))

    def adopt(self, pid: int) -> None:
        """Take in a process and its descendants, with whatever they start from now on."""
        known: set[int] = set()
        while new := [member for member in _descendants(pid) if member not in known]:
            known.update(new)
            for folder in self.folders:
                for member in new:
                    with contextlib.suppress(OSError):  # it has ended meanwhile
                        (folder / "cgroup.procs").write_text(str(member), encoding="ascii")

    def joining(self, command: Sequence[str]) -> list[str]:
        """The command that runs `command` as a member."""
        if not self.folders:
            return list(command)
        script = "".join(f"echo $$ >{folder / 'cgroup.procs'}; " for folder in self.folders)
        return ["sh", "-c", f'{script}exec "$@"', "join", *command]

    def kill(self) -> None:
        """End every member that there is."""
        for folder in self.folders:
            for member in _members(folder):
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(member), signal.SIGKILL)

    def remove(self) -> None:
        """Once all members have been told to end, which may take them a moment. Idempotent."""
        for folder in self.folders:
            for _ in range(_REMOVALS):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(_PAUSE)
                else:
                    break


def _descendants(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in children.read_text(encoding="ascii").split()]
    return found


def _members(folder: Path) -> list[str]:
    try:
        return (folder / "cgroup.procs").read_text(encoding="ascii").split()
    except OSError:
        return ["?"]  # not ours to judge
