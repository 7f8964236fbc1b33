"""Directories for scratch data that do not outlive their process for long: the next one removes what is left."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cairn.errors import SetupError

PREFIX = "cairn-"
_OWNER = "owner.pid"


def make_root(base: Path | None = None) -> Path:
    """A new directory for this process's scratch data, below `base` (default: the directory for temporary files).

    Those that dead processes left there are removed first.
    """
    base = base or Path(tempfile.gettempdir())
    sweep(base)
    try:
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        (root / _OWNER).write_text(f"{os.getpid()} {_started(os.getpid())}", encoding="ascii")
    except OSError as error:
        raise SetupError(f"cannot write to {base}: {error.strerror}; set TMPDIR to a writable directory") from error
    return root


def sweep(base: Path) -> None:
    """Remove the roots below `base` whose owner is gone. Anything without our owner file is left alone."""
    for root in abandoned(base):
        shutil.rmtree(root, ignore_errors=True)


def abandoned(base: Path) -> Iterator[Path]:
    """The roots below `base` whose owner is gone."""
    for owner in base.glob(f"{PREFIX}*/{_OWNER}"):
        with contextlib.suppress(OSError, ValueError):
            pid, started = owner.read_text(encoding="ascii").split()
            if _started(int(pid)) != started:
                yield owner.parent


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty where there is none. Tells a reused pid apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
