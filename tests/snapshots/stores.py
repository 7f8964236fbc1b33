"""A store of each kind, with places of the test's own."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cairn.data.snapshot import StoreKind
from cairn.snapshot_ports import Contained, PortableEnvironment, SnapshotStore
from cairn.snapshots.contained import ContainerStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.podman import PodmanYard
from cairn.snapshots.containers.yard import Yard
from cairn.snapshots.native import NativeStore
from cairn.snapshots.replay import ReplayStore
from snapshots.needs import needs_criu, needs_podman


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    memory: Path
    disk: Path


@contextmanager
def places() -> Generator[Places]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory() as disk:
        yield Places(memory=Path(memory), disk=Path(disk))


def store_of(
    kind: StoreKind, environment: PortableEnvironment, containers: Contained, *, places: Places
) -> SnapshotStore:
    """Skips where this host has no containers of that kind."""
    images = Images(memory=places.memory / "images", disk=places.disk / "images", budget=2 << 30)
    match kind:
        case StoreKind.CRIU | StoreKind.PODMAN:
            needs_criu() if kind is StoreKind.CRIU else needs_podman()
            made = Yard if kind is StoreKind.CRIU else PodmanYard
            yard = made(folder=places.memory / "yard", command=containers.command, site=containers.site)
            return ContainerStore(containers, yard=yard, images=images)
        case StoreKind.NATIVE:
            return NativeStore(environment, folder=places.disk / "native")
        case StoreKind.REPLAY:
            return ReplayStore(environment)
