"""States as images of whole containers: exact, and cheap to open many times at once."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.snapshot import Snapshot
from cairn.data.task import Task
from cairn.errors import SessionError, boundary
from cairn.ports import Session
from cairn.scratch import remove_all
from cairn.snapshot_ports import Contained, ContainedSession, ContainerYard
from cairn.snapshots.containers.images import Images

_LEFT = "session.json"  # in an image: what the session knew that is not in its container
_FRESH = SnapshotId("fresh")  # the image of a container that has done nothing yet


class ContainerStore:
    """Implements `SnapshotStore`. All sessions, those at a root too, live in containers of their own."""

    def __init__(self, environment: Contained, *, yard: ContainerYard, images: Images) -> None:
        self.kind = yard.kind
        self._environment = environment
        self._yard = yard
        self._images = images
        self._preparing = asyncio.Lock()
        self._fresh: Path | None = None

    @property
    def build(self) -> str:
        return self._yard.build

    async def open_root(self, task: Task) -> ContainedSession:
        fresh = await self._prepared()
        container = await self._yard.thawed(fresh)
        try:
            async with boundary(SessionError, "no session could be begun in a container"):
                return await self._environment.begin_in(container, (fresh / _LEFT).read_bytes(), task)
        except BaseException:
            await container.end()
            raise

    async def save(self, session: Session, snapshot: SnapshotId, *, history: Sequence[Deed]) -> int:
        del history
        contained = _contained(session)
        async with self._images.writing(snapshot) as image:
            left = await contained.leave()
            try:
                await contained.container.freeze(image)
            except BaseException:
                with contextlib.suppress(SessionError):  # the container may have ended: what went wrong first is told
                    await contained.rejoin()
                raise
            await contained.rejoin()
            (image / _LEFT).write_bytes(left)
        return self._images.size(snapshot)

    async def open(self, snapshot: Snapshot) -> ContainedSession:
        if snapshot.build != self.build:
            raise SessionError(f"its image is of another build ({snapshot.build}; this one is {self.build})")
        async with self._images.reading(snapshot.id) as image:
            container = await self._yard.thawed(image)
            try:
                return await self._environment.resume_in(container, (image / _LEFT).read_bytes(), snapshot.task)
            except BaseException:
                await container.end()
                raise

    async def kept(self) -> Sequence[SnapshotId]:
        return self._images.kept()

    async def remove(self, snapshot: SnapshotId) -> None:
        await self._images.remove(snapshot)

    async def rest(self) -> None:
        """Give memory back, as at the end of a run: images wait on disk."""
        await self._images.rest()

    async def close(self) -> None:
        self._fresh = None
        await asyncio.to_thread(self._yard.close)

    async def _prepared(self) -> Path:
        """The image that every root session starts from, made once by this process."""
        async with self._preparing:
            if self._fresh is None or not self._fresh.is_dir():
                container = await self._yard.started()
                try:
                    left = await self._environment.prepare(container)
                    image = self._yard.place(_FRESH)
                    await asyncio.to_thread(remove_all, image)  # what another attempt may have left
                    await container.freeze(image)
                    (image / _LEFT).write_bytes(left)
                    self._fresh = image
                finally:
                    await container.end()
            return self._fresh


def _contained(session: Session) -> ContainedSession:
    if not isinstance(session, ContainedSession):
        raise SessionError("this session does not live in a container, so it cannot be saved with one")
    return session
