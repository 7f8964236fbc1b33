"""An environment whose sessions can be saved at any step and opened there again: verified, or not at all."""

import asyncio
import secrets
from collections.abc import Iterable, Sequence

from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import FromSnapshot, Recorded, Root, Start, Task, Template
from cairn.errors import ConfigError, SessionError
from cairn.ports import BlobStore, Environment, Event, EventSink, Session, WatchedSession
from cairn.snapshot_ports import SnapshotStore
from cairn.snapshots.likeness import unlikeness
from cairn.snapshots.references import References
from cairn.snapshots.sessions import SavableSession, savable
from cairn.snapshots.shelf import Shelf

_ATTEMPTS = 2  # with the store that made the snapshot; then each one down is tried once


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
        self._references = References()
        self._places = asyncio.Semaphore(environment.capacity)

    @property
    def name(self) -> str:
        return self._environment.name

    @property
    def capacity(self) -> int:
        return self._environment.capacity

    @property
    def templates(self) -> Sequence[Template]:
        return self._environment.templates

    @property
    def stores(self) -> Sequence[SnapshotStore]:
        """What keeps the states, best first."""
        return self._stores

    def has_expert(self, template: Template) -> bool:
        return self._environment.has_expert(template)

    async def open(self, task: Task, *, start: Start) -> SavableSession:
        """A session at the root or at a snapshot of this task, once a place is free."""
        match start:
            case Root():
                async with _Place(self._places) as place:
                    store = self._stores[0]
                    session = await store.open_root(task)
                    return place.taken(self._savable(session, task=task, store=store, opened=None, seen=None))
            case FromSnapshot(id=wanted):
                snapshot = self._shelf.get(wanted)
                if snapshot.task != task:
                    raise ConfigError(
                        f"snapshot {wanted} is of {snapshot.task.id}, not of {task.id}: open it with that"
                    )
                return await self._opened(snapshot)
            case Recorded():
                raise ConfigError("a recorded state has no session: it is answered without an environment")

    def snapshot(self, wanted: SnapshotId) -> Snapshot:
        """What is known of it. Raises `ConfigError` where there is none."""
        return self._shelf.get(wanted)

    def snapshots(self) -> Iterable[Snapshot]:
        return iter(self._shelf)

    def retain(self, snapshot: SnapshotId) -> None:
        """Keep it for one more user, who will `release` it. Whoever saved one is its first user."""
        self._shelf.get(snapshot)  # says what is wrong
        self._references.retain(snapshot)

    async def release(self, snapshot: SnapshotId) -> None:
        """One user less; without any, the snapshot is removed. One that is being opened goes afterwards."""
        if self._references.release(snapshot):
            self._shelf.remove(snapshot)
            for store in self._stores:
                await store.remove(snapshot)

    async def collect(self) -> int:
        """Remove what stores keep of snapshots that are not on the shelf, as a killed process leaves it; how many.

        Nobody else may be saving to the same folders meanwhile.
        """
        found = 0
        for store in self._stores:
            for snapshot in await store.kept():
                if snapshot not in self._shelf:
                    await store.remove(snapshot)
                    found += 1
        return found

    async def close(self) -> None:
        """End sessions and stores; snapshots stay. Idempotent."""
        for store in self._stores:
            await store.close()
        await self._environment.close()

    # ── opening ───────────────────────────────────────────────────────────────

    async def _opened(self, snapshot: Snapshot) -> SavableSession:
        self._references.retain(snapshot.id)
        try:
            async with _Place(self._places) as place:
                return place.taken(await self._verified(snapshot))
        finally:
            await self.release(snapshot.id)

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

    def _from(self, kind: StoreKind) -> Sequence[SnapshotStore]:
        """The store of that kind, and those below it in the order of preference."""
        kinds = [store.kind for store in self._stores]
        if kind not in kinds:
            raise ConfigError(f"the snapshot was saved by the store {kind}, and this run has {', '.join(kinds)}")
        return self._stores[kinds.index(kind) :]

    async def _compared(self, store: SnapshotStore, snapshot: Snapshot) -> tuple[Session, Observation]:
        session = await store.open(snapshot)
        try:
            seen = await session.observe()
            difference = unlikeness(snapshot.seen, seen, blobs=self._blobs, tolerance=self._tolerance)
            errors = await _script_errors(session)
        except BaseException:
            await session.close()
            raise
        if errors != snapshot.script_errors and not difference:
            difference = f"its scripts had raised {snapshot.script_errors} errors then, and {errors} now"
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
                script_errors=await _script_errors(inner),
                kind=store.kind,
                parent=opened.id if opened else None,
                size=await self._kept(inner, wanted, session=session, store=store),
                build=store.build,
            )
            self._shelf.put(snapshot)
            self._tell("snapshot_saved", snapshot, store=store.kind, bytes=snapshot.size)
            return wanted

        return savable(inner, before=opened.history if opened else (), save=save, seen=seen)

    async def _kept(self, inner: Session, wanted: SnapshotId, *, session: SavableSession, store: SnapshotStore) -> int:
        """Bytes kept by the store and by those below it, which must be able to open the state where it fails."""
        size = 0
        try:
            for one in self._from(store.kind):
                size += await one.save(inner, wanted, history=session.deeds)
        except BaseException:
            for one in self._from(store.kind):
                await one.remove(wanted)
            raise
        return size

    def _tell(self, kind: str, snapshot: Snapshot, **fields: str | int) -> None:
        task = snapshot.task
        told = {"snapshot": snapshot.id, "template": task.template.id, "task": task.id, **fields}
        self._events.emit(Event(kind=kind, fields=told))


class _Place:
    """A free place for a session, which keeps it until it is closed; given back at once where none comes of it."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._taken = False

    async def __aenter__(self) -> "_Place":
        await self._places.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._taken:
            self._places.release()

    def taken(self, session: SavableSession) -> SavableSession:
        self._taken = True
        session.on_close(self._places.release)
        return session


async def _script_errors(session: Session) -> int:
    return await session.script_errors() if isinstance(session, WatchedSession) else 0
