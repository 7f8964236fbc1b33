"""Processes and what descends from them."""

import contextlib
from collections.abc import Sequence
from pathlib import Path


def lives(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()


def children_of(pid: int) -> list[int]:
    """Of all threads of a process; none where it has ended."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in children.read_text(encoding="ascii").split()]
    return found


def adopt(pid: int, folders: Sequence[Path]) -> None:
    """Take a process and its descendants into control groups, with whatever they start from now on."""
    known: set[int] = set()
    while new := [member for member in _descendants(pid) if member not in known]:
        known.update(new)
        for folder in folders:
            for member in new:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    (folder / "cgroup.procs").write_text(str(member), encoding="ascii")


def _descendants(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    found = [pid]
    for parent in found:
        found += children_of(parent)
    return found
