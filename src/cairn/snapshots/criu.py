"""States as images of whole containers that are Cairn's own, frozen and thawed by criu itself."""

from cairn.data.snapshot import StoreKind
from cairn.snapshot_ports import Contained
from cairn.snapshots.contained import ContainerStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.yard import Yard


class CriuStore(ContainerStore):
    """Containers without any program between criu and them: the cheapest to open many times at once."""

    def __init__(self, environment: Contained, *, yard: Yard, images: Images) -> None:
        super().__init__(environment, kind=StoreKind.CRIU, yard=yard, images=images)
