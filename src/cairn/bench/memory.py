"""What sessions weigh."""

import contextlib

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
