"""What sessions weigh."""

import contextlib
from pathlib import Path

import psutil

from cairn.ports import Session
from cairn.snapshot_ports import ContainedSession

_MEGABYTE = 2**20


def pss_mb(session: Session) -> float | None:
    """Proportional memory of the processes of a session's own container, in MB; None where it has none."""
    if not isinstance(session, ContainedSession):
        return None
    return tree_pss_mb(session.container.pid, itself=True)


def tree_pss_mb(pid: int, *, itself: bool) -> float:
    """Proportional memory of a process's descendants, and of itself if wanted; shared pages are counted once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [*([root] if itself else []), *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += int(process.memory_full_info().pss)
    return total / _MEGABYTE


def reset_peak() -> None:
    """Begin to look for this process's largest memory anew. Linux alone."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_mb() -> float:
    """This process's largest resident memory since `reset_peak`, in MB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def resident_mb() -> float:
    """This process's resident memory, in MB."""
    return psutil.Process().memory_info().rss / _MEGABYTE
