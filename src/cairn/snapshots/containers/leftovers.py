"""What Cairn made on this host and no living process owns: found, shown, removed. Nothing else is touched."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cairn.scratch import (
    OWNER_VARIABLE,
    PREFIX,
    abandoned,
    is_gone,
    mark_in,
    mounts_in,
    remove_all,
    unfinished,
)
from cairn.snapshots.containers.cgroups import ROOT, marked_groups, remove_group

MEMORY = Path("/dev/shm")  # noqa: S108 - only what carries a dead owner's mark is removed from it
_SECONDS = 15.0
_PAUSE = 0.02
_PROC = Path("/proc")


class Kind(StrEnum):
    """What can be left, in the order in which it is removed."""

    PROCESS = "process"
    MOUNT = "mount"
    GROUP = "control group"
    FOLDER = "folder"
    UNFINISHED = "unfinished file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing whose owner has ended."""

    kind: Kind
    what: str  # in words
    where: Path  # its place; of a process, its folder in /proc
    owner: str  # the mark of the process that made it

    @property
    def there(self) -> bool:
        """Whether it is there still."""
        match self.kind:
            case Kind.PROCESS:
                return _owner_of_process(self.where) == self.owner
            case Kind.MOUNT:
                return self.where in mounts_in(self.where)
            case _:
                return self.where.exists() or self.where.is_symlink()

    def remove(self) -> None:
        """Begin to remove it, which may take processes a moment. Idempotent."""
        if not self.there:
            return
        match self.kind:
            case Kind.PROCESS:
                _kill(self.where, self.owner)
            case Kind.MOUNT:
                subprocess.run(["umount", "-l", str(self.where)], check=False, capture_output=True)  # noqa: S603, S607
            case Kind.GROUP:
                remove_group(self.where)
            case _:
                if not mounts_in(self.where):
                    remove_all(self.where)


def leftovers(
    *, places: Sequence[Path] | None = None, kept: Sequence[Path] = (), groups: Path = ROOT
) -> tuple[Leftover, ...]:
    """Everything of dead owners: in the order in which it is removed.

    `places` hold scratch folders (default: the directory for temporary files, and memory); `kept` are folders of
    things that are written whole or not at all: images in memory and on disk, states, the catalogue.
    """
    places = (Path(tempfile.gettempdir()), MEMORY) if places is None else places
    found = [*_processes(), *_groups(groups)]
    for place in dict.fromkeys(places):
        for folder, owner in abandoned(place):
            found += [
                Leftover(kind=Kind.MOUNT, what="a mount in an abandoned folder", where=mount, owner=owner)
                for mount in mounts_in(folder)
            ]
            found.append(Leftover(kind=Kind.FOLDER, what="scratch data", where=folder, owner=owner))
    for folder in dict.fromkeys(kept):
        for path, owner in unfinished(folder):
            found.append(Leftover(kind=Kind.UNFINISHED, what="begun, never finished", where=path, owner=owner))
    order = list(Kind)
    return tuple(sorted(found, key=lambda left: order.index(left.kind)))


def clean(found: Sequence[Leftover], *, seconds: float = _SECONDS) -> tuple[Leftover, ...]:
    """Remove all of it; what is still there after so many seconds."""
    deadline = time.monotonic() + seconds
    for kind in Kind:
        left = [one for one in found if one.kind is kind]
        while left:
            for one in left:
                one.remove()
            left = [one for one in left if one.there]
            if time.monotonic() >= deadline:
                break
            if left:
                time.sleep(_PAUSE)
    return tuple(one for one in found if one.there)


def _processes() -> Iterator[Leftover]:
    for folder in _PROC.glob("[0-9]*"):
        owner = _owner_of_process(folder)
        if owner:
            yield Leftover(kind=Kind.PROCESS, what=_command_of(folder), where=folder, owner=owner)


def _groups(root: Path) -> Iterator[Leftover]:
    for folder in marked_groups(root):
        owner = mark_in(folder.name)
        if owner and is_gone(owner):
            yield Leftover(kind=Kind.GROUP, what="limits of a container", where=folder, owner=owner)


def _owner_of_process(folder: Path) -> str:
    """The dead owner of a process that lives on without it; empty where there is none."""
    try:
        status = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    if status[0] in "ZX" or folder.name == str(os.getpid()):
        return ""
    marks = {*_marks_in_environment(folder), *_marks_in_groups(folder), *_marks_in_mounts(folder)}
    return min(marks) if marks and all(is_gone(mark) for mark in marks) else ""


def _marks_in_environment(folder: Path) -> Iterator[str]:
    """Programs that Cairn runs outside of containers have it."""
    for variable in _read(folder / "environ").split("\0"):
        name, _, value = variable.partition("=")
        if name == OWNER_VARIABLE and mark_in(value):
            yield mark_in(value)


def _marks_in_groups(folder: Path) -> Iterator[str]:
    """A container's processes are members, where the host has control groups."""
    for line in _read(folder / "cgroup").splitlines():
        yield from _marked(line.rpartition("/")[2])


def _marks_in_mounts(folder: Path) -> Iterator[str]:
    """A container's mounts say whose they are, to all who live on them."""
    try:
        if (folder / "ns" / "mnt").readlink() == (_PROC / "self" / "ns" / "mnt").readlink():
            return
    except OSError:
        return
    for line in _read(folder / "mountinfo").splitlines():
        yield from _marked(line.partition(" - ")[2].split(" ")[1])


def _marked(name: str) -> Iterator[str]:
    if name.startswith(PREFIX) and mark_in(name):
        yield mark_in(name)


def _kill(folder: Path, owner: str) -> None:
    """By a handle, so that no other process of the same number can be meant."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(int(folder.name))
        try:
            if _owner_of_process(folder) == owner:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _command_of(folder: Path) -> str:
    return _read(folder / "cmdline").replace("\0", " ").strip()[:100] or _read(folder / "comm").strip()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
