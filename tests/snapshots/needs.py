"""What a test may need of its host."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from cairn.snapshots.containers.probe import Usable, proved


@cache
def criu_here() -> Usable:
    """Whether containers can be saved and thawed, proved once in a process."""
    with ThreadPoolExecutor(max_workers=1) as thread:  # a test may have an event loop of its own
        return thread.submit(lambda: asyncio.run(proved())).result()


def needs_criu() -> None:
    """Skip the test, with the reason, where they cannot."""
    if not criu_here().ok:
        pytest.skip(f"{criu_here().reason}: {criu_here().fix}")
