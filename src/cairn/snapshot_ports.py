"""The seams of snapshots, beside those in `cairn.ports`: containers, environments that export states, and stores."""

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import Task
from cairn.ports import Environment, Session


class Container(Protocol):
    """A browser with all that it needs, by itself, so that the whole can be saved and copied."""

    @property
    def pid(self) -> int:
        """Of its process 1, on this host."""
        ...

    @property
    def scratch(self) -> Path:
        """A directory that lives as long as the container."""
        ...

    async def connect(self) -> socket.socket:
        """A new connection to the browser; the one before must be closed."""
        ...

    async def freeze(self, image: Path) -> None:
        """Write it whole to the new folder `image`. It goes on, and nobody may be connected."""
        ...

    async def end(self) -> None:
        """Kill everything in it, and wait until nothing is left. Idempotent."""
        ...


class ContainerYard(Protocol):
    """Where containers are started, frozen and thawed."""

    @property
    def kind(self) -> StoreKind:
        """What a store of its images is called."""
        ...

    @property
    def build(self) -> str:
        """What an image of today can be thawed with."""
        ...

    async def started(self) -> Container:
        """A new container, whose browser has only just been started."""
        ...

    async def thawed(self, image: Path) -> Container:
        """A new container in the state of an image."""
        ...

    def place(self, name: str) -> Path:
        """A folder for an image that lives no longer than this yard."""
        ...

    def close(self) -> None:
        """Remove what containers had in common. Blocks. Idempotent; containers must have ended."""
        ...


@runtime_checkable
class ContainedSession(Session, Protocol):
    """A session whose browser lives in a container."""

    @property
    def container(self) -> Container: ...

    async def leave(self) -> bytes:
        """Let go of the container, which stays as it is; what another session needs to go on in a copy of it."""
        ...

    async def rejoin(self) -> None:
        """Come back after `leave`."""
        ...


class Contained(Protocol):
    """An environment that can work in containers."""

    @property
    def command(self) -> Sequence[str]:
        """Starts the browser in a container."""
        ...

    @property
    def site(self) -> Path:
        """The folder that a container has at /srv/site."""
        ...

    async def prepare(self, container: Container) -> bytes:
        """Make a new container ready for any task, and let go of it; what `begin_in` needs."""
        ...

    async def begin_in(self, container: Container, prepared: bytes, task: Task) -> ContainedSession:
        """A session at the task's root in a copy of a prepared container, which ends with the session."""
        ...

    async def resume_in(self, container: Container, left: bytes, task: Task) -> ContainedSession:
        """A session in a copy of a container that another session left."""
        ...


@runtime_checkable
class PortableSession(Session, Protocol):
    """A session that can say all that matters of its state."""

    async def export_state(self) -> bytes:
        """What `PortableEnvironment.import_state` needs to come to the same state."""
        ...


@runtime_checkable
class PortableEnvironment(Environment, Protocol):
    """An environment that can be put into a state of its own making. Its sessions are `PortableSession`s."""

    @property
    def uncovered(self) -> Sequence[str]:
        """What an exported state leaves out, in words ("requests under way"); empty where that is nothing."""
        ...

    async def import_state(self, task: Task, state: bytes) -> Session:
        """A new session of `task` in that state."""
        ...


class SnapshotKeeper(Protocol):
    """Knows the snapshots that there are, and who still needs them."""

    def snapshots(self) -> Iterable[Snapshot]:
        """All of them."""
        ...

    def retain(self, snapshot: SnapshotId) -> None:
        """Keep it for one more user, who will `release` it. Whoever saved one is its first user."""
        ...

    async def release(self, snapshot: SnapshotId) -> None:
        """One user less; without any, the snapshot is removed."""
        ...


class SnapshotStore(Protocol):
    """One way to keep the states of sessions. Failures outside are `SessionError`s."""

    @property
    def kind(self) -> StoreKind: ...

    @property
    def build(self) -> str:
        """What a snapshot of today can be opened with; empty where anything will do."""
        ...

    async def open_root(self, task: Task) -> Session:
        """A session at the task's root that this store can save."""
        ...

    async def save(self, session: Session, snapshot: SnapshotId, *, history: Sequence[Deed]) -> int:
        """Keep the state of a session that this store opened, which goes on undisturbed. Bytes kept."""
        ...

    async def open(self, snapshot: Snapshot) -> Session:
        """A new session in that state, not yet verified."""
        ...

    async def kept(self) -> Sequence[SnapshotId]:
        """What is kept by now, by this process or another."""
        ...

    async def remove(self, snapshot: SnapshotId) -> None:
        """Forget it. Idempotent."""
        ...

    async def close(self) -> None:
        """Free what is held for opening; snapshots stay. Idempotent."""
        ...
