"""Screenshots on disk: each stored once, under the hash of its bytes."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cairn.data.ids import ImageId
from cairn.errors import StoreError
from cairn.ports import BlobStore
from cairn.store.disk import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCounts:
    """What was put since the store was opened."""

    stored: int  # new blobs
    stored_bytes: int
    repeated: int  # puts of what was there already
    repeated_bytes: int


class BorrowingBlobs:
    """A blob store that takes over from another one whatever it is asked for, so that it needs it only once."""

    def __init__(self, own: BlobStore, *, lender: BlobStore) -> None:
        self._own = own
        self._lender = lender

    def put(self, data: bytes) -> ImageId:
        return self._own.put(data)

    def get(self, image: ImageId) -> bytes:
        try:
            return self._own.get(image)
        except KeyError:
            data = self._lender.get(image)
            self._own.put(data)
            return data


class BlobFolder:
    """A folder of content-addressed files, spread over 256 folders. May be used from several threads.

    A blob is checked against its name when it is read from disk; the most recently used ones are kept in memory.
    """

    def __init__(self, folder: Path, *, cache_bytes: int = 64 << 20, sync: bool = False) -> None:
        self._folder = folder
        self._cache_bytes = cache_bytes
        self._sync = sync
        self._lock = threading.Lock()
        self._cache: OrderedDict[ImageId, bytes] = OrderedDict()
        self._cached = 0
        self._counts = BlobCounts(stored=0, stored_bytes=0, repeated=0, repeated_bytes=0)

    @property
    def counts(self) -> BlobCounts:
        """How much was stored, and how much did not have to be."""
        return self._counts

    def path(self, image: ImageId) -> Path:
        """Where that blob lies, or would."""
        return self._folder / image[:2] / image[2:]

    def put(self, data: bytes) -> ImageId:
        image = ImageId(hashlib.sha256(data).hexdigest())
        with self._lock:
            new = image not in self._cache and not self.path(image).exists()
            if new:
                write_whole(self.path(image), data, sync=self._sync)
            self._count(len(data), new=new)
            self._remember(image, data)
        return image

    def get(self, image: ImageId) -> bytes:
        with self._lock:
            if image in self._cache:
                self._cache.move_to_end(image)
                return self._cache[image]
            try:
                data = self.path(image).read_bytes()
            except FileNotFoundError:
                raise KeyError(image) from None
            if hashlib.sha256(data).hexdigest() != image:
                raise StoreError(f"{self.path(image)} is damaged: its content does not match its name")
            self._remember(image, data)
            return data

    def keep_only(self, wanted: Collection[ImageId]) -> int:
        """Remove every other blob, and what was not written to its end; how many files. Nobody may `put` meanwhile."""
        found = 0
        for path in self._folder.glob("??/*"):
            if f"{path.parent.name}{path.name}" not in wanted:
                path.unlink(missing_ok=True)
                found += 1
        with self._lock:
            self._cache.clear()
            self._cached = 0
        return found

    def _remember(self, image: ImageId, data: bytes) -> None:
        if image in self._cache:
            self._cache.move_to_end(image)
            return
        self._cache[image] = data
        self._cached += len(data)
        while self._cached > self._cache_bytes and self._cache:
            _, evicted = self._cache.popitem(last=False)
            self._cached -= len(evicted)

    def _count(self, size: int, *, new: bool) -> None:
        old = self._counts
        self._counts = BlobCounts(
            stored=old.stored + new,
            stored_bytes=old.stored_bytes + size * new,
            repeated=old.repeated + (not new),
            repeated_bytes=old.repeated_bytes + size * (not new),
        )
