"""An environment whose sessions can be saved at any step and opened there again: verified, or not at all."""

import secrets
from collections.abc import Sequence

from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import FromSnapshot, Recorded, Root, Start, Task, Template
from cairn.errors import ConfigError, SessionError
from cairn.ports import BlobStore, Environment, Event, EventSink, Session, SnapshotStore
from cairn.snapshots.likeness import unlikeness
from cairn.snapshots.sessions import SavableSession, savable
from cairn.snapshots.shelf import Shelf

_ATTEMPTS = 2  # with the store that made the snapshot; then the next one down is tried once


class SnapshotEnvironment:
    """Wraps an environment. `stores` are in order of preference, the last being the fallback of them all.

    Every opening is compared with what was saved. One that differs is tried again, then with the next store down; when
    all fail the plan fails as an infrastructure error. Nothing is learned from a state that is not the saved one.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        stores: Sequence[SnapshotStore],
        shelf: Shelf,
        blobs: BlobStore | None,
        events: EventSink,
        tolerance: float = 0.0,
    ) -> None:
        """`tolerance` is the share of a screenshot's pixels that may differ."""
        if not stores:
            raise ConfigError("snapshots need a store: choose criu, podman, native or replay")
        self._environment = environment
        self._stores = tuple(stores)
        self._shelf = shelf
        self._blobs = blobs
        self._events = events
        self._tolerance = tolerance

    @property
    def name(self) -> str:
        return self._environment.name

    @property
    def capacity(self) -> int:
        return self._environment.capacity

    @property
    def templates(self) -> Sequence[Template]:
        return self._environment.templates

    def has_expert(self, template: Template) -> bool:
        return self._environment.has_expert(template)

    async def open(self, task: Task, *, start: Start) -> SavableSession:
        """A session at the root or at a snapshot of this task."""
        match start:
            case Root():
                store = self._stores[0]
                return self._savable(await store.open_root(task), task=task, store=store, opened=None, seen=None)
            case FromSnapshot(id=wanted):
                snapshot = self._shelf.get(wanted)
                if snapshot.task != task:
                    raise ConfigError(
                        f"snapshot {wanted} is of {snapshot.task.id}, not of {task.id}: open it with that"
                    )
                return await self._verified(snapshot)
            case Recorded():
                raise ConfigError("a recorded state has no session: it is answered without an environment")

    async def close(self) -> None:
        """End sessions and stores; snapshots stay. Idempotent."""
        for store in self._stores:
            await store.close()
        await self._environment.close()

    # ── opening ───────────────────────────────────────────────────────────────

    async def _verified(self, snapshot: Snapshot) -> SavableSession:
        failures: list[str] = []
        for store in self._from(snapshot.kind):
            for _ in range(_ATTEMPTS if store.kind is snapshot.kind else 1):
                try:
                    session, seen = await self._compared(store, snapshot)
                except SessionError as error:
                    failures.append(f"{store.kind}: {error}")
                    self._tell("snapshot_failed", snapshot, store=store.kind, error=str(error))
                    continue
                if store.kind is not snapshot.kind:
                    self._tell("snapshot_fallback", snapshot, store=store.kind)
                return self._savable(session, task=snapshot.task, store=store, opened=snapshot, seen=seen)
        raise SessionError(f"snapshot {snapshot.id} could not be opened: {'; '.join(failures)}")

    def _from(self, kind: StoreKind) -> list[SnapshotStore]:
        """The store of that kind, and those below it in the order of preference."""
        kinds = [store.kind for store in self._stores]
        if kind not in kinds:
            raise ConfigError(f"the snapshot was saved by the store {kind}, and this run has {', '.join(kinds)}")
        return list(self._stores[kinds.index(kind) :])

    async def _compared(self, store: SnapshotStore, snapshot: Snapshot) -> tuple[Session, Observation]:
        session = await store.open(snapshot)
        try:
            seen = await session.observe()
            difference = unlikeness(snapshot.seen, seen, blobs=self._blobs, tolerance=self._tolerance)
        except BaseException:
            await session.close()
            raise
        if difference:
            await session.close()
            raise SessionError(f"the state that came back is not the saved one: {difference}")
        return session, seen

    # ── saving ────────────────────────────────────────────────────────────────

    def _savable(
        self, inner: Session, *, task: Task, store: SnapshotStore, opened: Snapshot | None, seen: Observation | None
    ) -> SavableSession:
        async def save(session: SavableSession) -> SnapshotId:
            wanted = SnapshotId(secrets.token_hex(8))
            shown = await session.observe()
            snapshot = Snapshot(
                id=wanted,
                task=task,
                goal=session.goal,
                history=session.deeds,
                seen=shown,
                kind=store.kind,
                parent=opened.id if opened else None,
                size=await store.save(inner, wanted, history=session.deeds),
                build=store.build,
            )
            self._shelf.put(snapshot)
            return wanted

        return savable(inner, before=opened.history if opened else (), save=save, seen=seen)

    def _tell(self, kind: str, snapshot: Snapshot, **fields: str) -> None:
        self._events.emit(Event(kind=kind, fields={"snapshot": snapshot.id, "task": snapshot.task.id, **fields}))
