"""Cairn trains GUI agents: a rollout starts at a state and runs for a horizon."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.store.run import Run

__version__ = "0.1.0"


def open_run(path: Path | str) -> "Run":
    """Read a run's directory: iterate over it for its groups, or ask for `to_arrow()` or `to_pandas()`."""
    from cairn.store.run import open_run as read  # late: it imports pyarrow, which takes half a second

    return read(path)
