"""What a test may need of its host."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from cairn.snapshots.containers.probe import podman_proved, proved
from cairn.snapshots.containers.usable import Usable


def needs_criu() -> None:
    """Skip the test, with the reason, where containers cannot be saved and thawed."""
    _require(_criu_here)


def needs_podman() -> None:
    """The same of containers that Podman owns."""
    _require(_podman_here)


@cache
def _criu_here() -> Usable:
    return _found(proved)


@cache
def _podman_here() -> Usable:
    return _found(podman_proved)


def _found(prove: Callable[[], Coroutine[object, object, Usable]]) -> Usable:
    """Proved once in a process."""
    with ThreadPoolExecutor(max_workers=1) as thread:  # a test may have an event loop of its own
        return thread.submit(lambda: asyncio.run(prove())).result()


def _require(here: Callable[[], Usable]) -> None:
    if os.environ.get("CAIRN_TEST_CRIU", "0") == "0":
        pytest.skip("`just containers` freezes and thaws real containers")
    if not here().ok:
        pytest.skip(f"{here().reason}: {here().fix}")
