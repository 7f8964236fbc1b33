"""A run whose trajectories are learned from again."""

from cairn.config.table import Table


class StoredOptions(Table):
    """Of `reinforcement.scheduler = "stored"`: what was played before, by another policy of the same kind."""

    run: str | None = None
    """The directory of a run. What was tried at one of its training tasks, or recorded states, is compared."""
