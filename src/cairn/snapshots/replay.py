"""The plainest way to keep a state: do again what led there. Works everywhere, and costs as much as it did."""

from collections.abc import Sequence

from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import Root, Task
from cairn.ports import Session, SessionFactory


class ReplayStore:
    """Implements `SnapshotStore` over any environment: what is kept is the history alone."""

    kind = StoreKind.REPLAY
    build = ""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions

    async def open_root(self, task: Task) -> Session:
        return await self._sessions.open(task, start=Root())

    async def save(self, session: Session, snapshot: SnapshotId, *, history: Sequence[Deed]) -> int:
        del session, snapshot, history
        return 0

    async def open(self, snapshot: Snapshot) -> Session:
        """Observes before every action, as the session that is repeated did: elements are numbered then."""
        session = await self.open_root(snapshot.task)
        try:
            for deed in snapshot.history:
                await session.observe()
                await session.act(deed.action)
        except BaseException:
            await session.close()
            raise
        return session

    async def kept(self) -> Sequence[SnapshotId]:
        return ()

    async def remove(self, snapshot: SnapshotId) -> None:
        del snapshot

    async def close(self) -> None:
        return
