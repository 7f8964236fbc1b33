"""What a test may need of its host."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from cairn.snapshots.containers.probe import podman_proved, proved
from cairn.snapshots.containers.usable import Usable


@cache
def criu_here() -> Usable:
    """Whether containers can be saved and thawed, proved once in a process."""
    with ThreadPoolExecutor(max_workers=1) as thread:  # a test may have an event loop of its own
        return thread.submit(lambda: asyncio.run(proved())).result()


@cache
def podman_here() -> Usable:
    """The same of containers that Podman owns."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(podman_proved())).result()


def needs_criu() -> None:
    """Skip the test, with the reason, where they cannot."""
    if not os.environ.get("CAIRN_TEST_CRIU"):
        pytest.skip("set CAIRN_TEST_CRIU=1 to freeze and thaw real containers")
    if not criu_here().ok:
        pytest.skip(f"{criu_here().reason}: {criu_here().fix}")


def needs_podman() -> None:
    """Skip the test, with the reason, where Podman cannot."""
    if not os.environ.get("CAIRN_TEST_CRIU"):
        pytest.skip("set CAIRN_TEST_CRIU=1 to freeze and thaw real containers")
    if not podman_here().ok:
        pytest.skip(f"{podman_here().reason}: {podman_here().fix}")
