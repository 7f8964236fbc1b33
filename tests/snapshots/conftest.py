"""Places for containers."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshots.needs import needs_criu


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where this host has containers; the test is skipped, with the reason, where it has none."""
    needs_criu()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
