"""Directories for scratch data that do not outlive their process for long: the next one removes what is left.

Whatever lives outside a process carries the mark of its owner: in its name, in a file, or in the environment of a
program that it runs. The mark tells a process from a later one with its number, and from those that it cannot see.
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cairn.errors import SetupError

PREFIX = "cairn-"
OWNER_VARIABLE = "CAIRN_OWNER"
"""In the environment of programs that end with their owner: its mark."""

UNFINISHED = ".new"
"""How a name ends, after a mark, while its owner still writes what is called so."""

_OWNER = "owner.pid"
_BEFORE = ("number", "start")  # what earlier versions wrote there
_OCTAL = re.compile(r"\\([0-7]{3})")
_MARK = re.compile(r"(?<![0-9])(\d+)-(\d+)-(\d+)(?![0-9])")


def mark() -> str:
    """This process, in letters that any file's name may have: number, start, namespace of process numbers."""
    pid = os.getpid()
    return f"{pid}-{_started(pid)}-{_numbered_in()}"


def mark_in(text: str) -> str:
    """The first mark in a text; empty where it has none."""
    found = _MARK.search(text)
    return found[0] if found else ""


def is_gone(owner: str) -> bool:
    """Whether the process of a mark has ended. One of another namespace may live: nobody can tell from here."""
    pid, started, namespace = owner.split("-")
    return int(namespace) == _numbered_in() and _started(int(pid)) != started


def unfinished_name(name: str) -> str:
    """What a file or folder is called until it is whole, and again once it is being removed."""
    return f"{name}.{mark()}{UNFINISHED}"


def unfinished(folder: Path) -> Iterator[tuple[Path, str]]:
    """What dead processes have not finished in a folder, with their marks."""
    for path in folder.glob(f"*{UNFINISHED}"):
        owner = mark_in(path.name)
        if owner and is_gone(owner):
            yield path, owner


def make_root(base: Path | None = None) -> Path:
    """A new directory for this process's scratch data, below `base` (default: the directory for temporary files).

    Those that dead processes left there are removed first.
    """
    base = base or Path(tempfile.gettempdir())
    sweep(base)
    root = base / f"{PREFIX}{secrets.token_hex(4)}"  # short: sockets lie below it, whose paths have a limit
    fresh = base / unfinished_name(root.name)
    try:
        fresh.mkdir(mode=0o700)
        (fresh / _OWNER).write_text(mark().replace("-", " "), encoding="ascii")
        fresh.rename(root)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise SetupError(f"cannot write to {base}: {error.strerror}; set TMPDIR to a writable directory") from error
    return root


def sweep(base: Path) -> None:
    """Remove the roots below `base` whose owner is gone. Anything without an owner's mark is left alone.

    So is one that something is mounted in: what is mounted is not ours to remove.
    """
    for root, _ in abandoned(base):
        if not mounts_in(root):
            remove_all(root)


def mounts_in(folder: Path) -> list[Path]:
    """What this process sees mounted in a folder or at it, the innermost first."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []  # not Linux
    places = [Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split()[4])) for line in lines]
    return sorted((place for place in places if place.is_relative_to(folder)), reverse=True)


def remove_all(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, as far as that is possible. Idempotent."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def abandoned(base: Path) -> Iterator[tuple[Path, str]]:
    """The roots below `base` whose owner is gone, with its mark."""
    for root in base.glob(f"{PREFIX}*"):
        owner = mark_in(root.name) if root.name.endswith(UNFINISHED) else _owner_of(root)
        if owner and is_gone(owner):
            yield root, owner


def _owner_of(root: Path) -> str:
    """The mark in a root of this user's; empty where it has none."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        about = root.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
            fields = (root / _OWNER).read_text(encoding="ascii").split()
            return mark_in("-".join(fields if len(fields) != len(_BEFORE) else [*fields, str(_numbered_in())]))
    return ""


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty where there is none. Tells a reused pid apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _numbered_in() -> int:
    """The namespace that gives this process its number; 0 where nothing tells."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
