"""Stores and sinks that forget when the process ends."""

import hashlib
from collections.abc import Iterable

from cairn.data.ids import ImageId
from cairn.data.trajectory import ScoredGroup
from cairn.ports import Event


class MemoryBlobs:
    """A blob store in a dictionary."""

    def __init__(self) -> None:
        self._blobs: dict[ImageId, bytes] = {}

    def put(self, data: bytes) -> ImageId:
        image = ImageId(hashlib.sha256(data).hexdigest())
        self._blobs[image] = data
        return image

    def get(self, image: ImageId) -> bytes:
        return self._blobs[image]


class MemoryStore:
    """A trajectory store in a list."""

    def __init__(self) -> None:
        self._groups: list[ScoredGroup] = []

    def append(self, group: ScoredGroup) -> None:
        self._groups.append(group)

    def read(self) -> Iterable[ScoredGroup]:
        return tuple(self._groups)


class MemoryEvents:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [event.kind for event in self.events]
