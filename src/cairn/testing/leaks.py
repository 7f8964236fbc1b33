"""What a process holds outside its own memory, before and after."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_SPARE_DESCRIPTORS = 2  # a lazily opened one of the interpreter's own is no leak; one for each session is


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Child processes, open file descriptors, entries of the temporary directory, and asyncio tasks."""

    processes: frozenset[int]
    descriptors: int
    temporary: frozenset[str]
    tasks: int


@contextmanager
def private_temporary_directory() -> Generator[Path]:
    """Give this process and its children an empty temporary directory of their own, so that what is left is theirs."""
    inherited, chosen = os.environ.get("TMPDIR"), tempfile.tempdir
    root = Path(tempfile.mkdtemp(prefix="cairn-check-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(root)
    try:
        yield root
    finally:
        tempfile.tempdir = chosen
        if inherited is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = inherited
        shutil.rmtree(root, ignore_errors=True)


def footprint(*, temporary: Path) -> Footprint:
    """This process's footprint; `temporary` is the directory whose entries count."""
    me = psutil.Process()
    return Footprint(
        processes=frozenset(child.pid for child in me.children(recursive=True)),
        descriptors=me.num_fds(),
        temporary=frozenset(entry.name for entry in temporary.iterdir()),
        tasks=len(asyncio.all_tasks()),
    )


def leaks(before: Footprint, after: Footprint) -> list[str]:
    """What is there that was not, in words; empty where nothing is."""
    found: list[str] = []
    if processes := after.processes - before.processes:
        found.append(f"{len(processes)} processes ({', '.join(map(str, sorted(processes)))})")
    if (descriptors := after.descriptors - before.descriptors) > _SPARE_DESCRIPTORS:
        found.append(f"{descriptors} file descriptors")
    if temporary := after.temporary - before.temporary:
        found.append(f"{len(temporary)} temporary entries ({', '.join(sorted(temporary)[:3])})")
    if (tasks := after.tasks - before.tasks) > 0:
        found.append(f"{tasks} asyncio tasks")
    return found


async def leaks_since(before: Footprint, *, temporary: Path, patience_s: float) -> list[str]:
    """What is left once `patience_s` has been given to processes that are going already."""
    deadline = time.monotonic() + patience_s
    while True:
        found = leaks(before, footprint(temporary=temporary))
        if not found or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(0.02)
