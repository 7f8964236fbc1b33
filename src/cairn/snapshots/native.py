"""States as the environment itself describes them: cheap where it can, and never more than it covers."""

from collections.abc import Sequence
from pathlib import Path

from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import Root, Task
from cairn.errors import SessionError
from cairn.ports import Session
from cairn.scratch import remove_all, unfinished_name
from cairn.snapshot_ports import PortableEnvironment, PortableSession


class NativeStore:
    """Implements `SnapshotStore` over a `PortableEnvironment`; one file for each state."""

    kind = StoreKind.NATIVE
    build = ""

    def __init__(self, environment: PortableEnvironment, *, folder: Path) -> None:
        self._environment = environment
        self._folder = folder

    async def open_root(self, task: Task) -> Session:
        return await self._environment.open(task, start=Root())

    async def save(self, session: Session, snapshot: SnapshotId, *, history: Sequence[Deed]) -> int:
        del history
        if not isinstance(session, PortableSession):
            raise SessionError(f"{self._environment.name} exports no states of its sessions")
        state = await session.export_state()
        path = self._path(snapshot)
        fresh = self._folder / unfinished_name(path.name)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(state)
            fresh.replace(path)
        except OSError as error:
            remove_all(fresh)
            raise SessionError(f"the state could not be written to {self._folder}: {error.strerror}") from error
        return len(state)

    async def open(self, snapshot: Snapshot) -> Session:
        try:
            state = self._path(snapshot.id).read_bytes()
        except OSError as error:
            raise SessionError(f"the state of snapshot {snapshot.id} cannot be read: {error}") from error
        return await self._environment.import_state(snapshot.task, state)

    async def kept(self) -> Sequence[SnapshotId]:
        return kept_states(self._folder)

    async def remove(self, snapshot: SnapshotId) -> None:
        self._path(snapshot).unlink(missing_ok=True)

    async def close(self) -> None:
        return

    def _path(self, snapshot: SnapshotId) -> Path:
        return state_path(self._folder, snapshot)


def state_path(folder: Path, snapshot: SnapshotId) -> Path:
    """Where the state of a snapshot lies."""
    return folder / f"{snapshot}.state"


def kept_states(folder: Path) -> list[SnapshotId]:
    """The snapshots whose states lie there."""
    return [SnapshotId(path.stem) for path in folder.glob("*.state")]
