"""Tests of the course run on virtual time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from cairn.testing.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}
