"""Saved states of live interfaces."""

from dataclasses import dataclass
from enum import StrEnum

from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.task import Task


class StoreKind(StrEnum):
    """Ways to keep a state, from exact to cheap."""

    CRIU = "criu"  # processes, memory and files of a container
    PODMAN = "podman"  # the same, by Podman
    NATIVE = "native"  # the environment's own structured state
    REPLAY = "replay"  # the actions that led there, done again


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state that can be opened again, as often as wanted."""

    id: SnapshotId
    task: Task
    goal: str
    history: tuple[Deed, ...]  # from the task's root to here
    seen: Observation  # what the state looks like
    script_errors: int  # that the page had raised or logged; 0 where nobody counts
    kind: StoreKind
    parent: SnapshotId | None  # the snapshot that its session was opened from
    size: int  # bytes that the store keeps for it
    build: str  # of what it can be opened with; empty where anything can

    @property
    def step(self) -> int:
        """Actions from the root to here."""
        return len(self.history)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """What was seen on the way, and here."""
        return (*(deed.observation for deed in self.history), self.seen)
