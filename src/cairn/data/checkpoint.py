"""States on the way of an expert that succeeded: where learning may start."""

from dataclasses import dataclass

from cairn.data.action import Action
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.task import FromSnapshot, Recorded, Task
from cairn.errors import InvariantError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One state, and what the expert did next."""

    task: Task
    goal: str
    history: tuple[Deed, ...]  # from the task's root to here
    observation: Observation
    expert: Action
    snapshot: SnapshotId | None = None  # None where no session can go on from here

    @property
    def step(self) -> int:
        """Actions from the root to here."""
        return len(self.history)

    def answered(self) -> Recorded:
        """Where one answer is asked for and nothing is executed."""
        return Recorded(goal=self.goal, history=self.history, observation=self.observation, expert=self.expert)

    def resumed(self) -> FromSnapshot:
        """Where a session goes on."""
        if self.snapshot is None:
            raise InvariantError(f"{self.task.id}, step {self.step}: there is no snapshot to go on from")
        return FromSnapshot(id=self.snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One task with the checkpoints of its expert's way, from the root on; none where no expert succeeded."""

    task: Task
    checkpoints: tuple[Checkpoint, ...] = ()

    def __post_init__(self) -> None:
        if any(checkpoint.task != self.task for checkpoint in self.checkpoints):
            raise InvariantError(f"{self.task.id}: a checkpoint of another task is on its track")
        steps = [checkpoint.step for checkpoint in self.checkpoints]
        if steps != sorted(set(steps)):
            raise InvariantError(f"{self.task.id}: checkpoints go from the root on, each at a step of its own")
