"""An append-only file of checksummed records. A record is in it whole, or it is the torn tail of a killed writer."""

import os
import struct
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import StoreError
from cairn.store.disk import sync_folder, writing

_HEADER = struct.Struct("<4sII")  # mark, length of the payload, its CRC-32
_MARK = b"CRN1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a journal holds."""

    records: tuple[bytes, ...]
    good_bytes: int  # up to the end of the last whole record
    torn_bytes: int  # after it


def scan(path: Path) -> Scan:
    """Read every whole record. A damaged record before the last one is a `StoreError`: no crash leaves that."""
    data = path.read_bytes()
    records: list[bytes] = []
    at = 0
    for payload, end in _records(data, path):
        records.append(payload)
        at = end
    return Scan(records=tuple(records), good_bytes=at, torn_bytes=len(data) - at)


def _records(data: bytes, path: Path) -> Iterator[tuple[bytes, int]]:
    at = 0
    while at + _HEADER.size <= len(data):
        mark, length, crc = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + length
        payload = data[at + _HEADER.size : end]
        if mark != _MARK or end > len(data) or zlib.crc32(payload) != crc:
            if mark != _MARK or end < len(data):
                raise StoreError(f"{path} is damaged at byte {at}: what is before it can be read, what follows cannot")
            return
        yield payload, end
        at = end


class Journal:
    """The writer of one journal. What `append` returned from survives a kill -9, and with `sync` a power cut too."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        """Open or create; a torn tail is cut off, and reported by `torn_bytes`."""
        self._path = path
        self._sync = sync
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            found = scan(path) if path.exists() else Scan(records=(), good_bytes=0, torn_bytes=0)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            if found.torn_bytes:
                os.ftruncate(self._file, found.good_bytes)
            if sync:
                sync_folder(path.parent)
        self._end = found.good_bytes
        self.torn_bytes = found.torn_bytes
        self.count = len(found.records)

    def append(self, payload: bytes) -> None:
        """Write one record. Where the disk refuses, the file is as before."""
        with writing(self._path), self._undone_on_error():
            _write_all(self._file, _HEADER.pack(_MARK, len(payload), zlib.crc32(payload)) + payload)
            if self._sync:
                os.fdatasync(self._file)
        self._end += _HEADER.size + len(payload)
        self.count += 1

    def clear(self) -> None:
        """Forget every record."""
        with writing(self._path):
            os.ftruncate(self._file, 0)
        self._end = self.count = 0

    def close(self) -> None:
        os.close(self._file)

    @contextmanager
    def _undone_on_error(self) -> Generator[None]:
        """A record that was written in part would hide every later one."""
        try:
            yield
        except OSError:
            os.ftruncate(self._file, self._end)
            raise


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
