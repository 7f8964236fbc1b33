"""States as images of whole containers that Podman owns, for hosts where that is wanted."""

from cairn.data.snapshot import StoreKind
from cairn.snapshots.contained import Contained, ContainerStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.podman import PodmanYard


class PodmanStore(ContainerStore):
    """Several times as slow to open as `CriuStore`, with the same states."""

    def __init__(self, environment: Contained, *, yard: PodmanYard, images: Images) -> None:
        super().__init__(environment, kind=StoreKind.PODMAN, yard=yard, images=images)
