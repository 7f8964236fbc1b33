"""States as images of whole containers that Podman owns, for hosts where that is wanted."""

from cairn.data.snapshot import StoreKind
from cairn.snapshot_ports import Contained
from cairn.snapshots.contained import ContainerStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.podman import PodmanYard


class PodmanStore(ContainerStore):
    """The same states as those of `CriuStore`; each save and opening runs Podman and a runtime beside criu."""

    def __init__(self, environment: Contained, *, yard: PodmanYard, images: Images) -> None:
        super().__init__(environment, kind=StoreKind.PODMAN, yard=yard, images=images)
