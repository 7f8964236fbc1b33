"""The trajectory store: a journal that every group enters at once, compacted into Parquet segments.

Files are numbered: `000007.journal` becomes `000007.1f2e3d4c.parquet`, which appears whole, and only then goes. So no
moment at which a process can die loses or doubles a group: where both exist, the segment holds all of the journal. The
middle of a segment's name is the CRC-32 of its bytes, for Parquet's own checksums leave its footer out.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from cairn.data.trajectory import ScoredGroup
from cairn.errors import StoreError
from cairn.store.codec import group_to_row, row_to_group
from cairn.store.disk import sweep, write_whole
from cairn.store.journal import Journal, scan
from cairn.store.rows import GROUP_SCHEMA, GroupRow


class SegmentStore:
    """The only writer of a folder of segments. `append` is durable on return."""

    def __init__(self, folder: Path, *, groups_per_segment: int = 32, sync: bool = True) -> None:
        """Open, and repair what a killed writer left. With `sync`, groups survive a power cut too."""
        self._folder = folder
        self._groups_per_segment = groups_per_segment
        self._sync = sync
        sweep(folder)
        segments = _segments(folder)
        for number in segments:
            _journal(folder, number).unlink(missing_ok=True)
        self._number = max(segments, default=-1) + 1
        self._open_journal()

    @property
    def torn_bytes(self) -> int:
        """What opening cut off: the beginning of a group whose `append` never returned."""
        return self._torn_bytes

    def append(self, group: ScoredGroup) -> None:
        self._journal.append(zlib.compress(json.dumps(group_to_row(group)).encode(), 1))
        if self._journal.count >= self._groups_per_segment:
            self.compact()

    def read(self) -> Iterator[ScoredGroup]:
        return read_groups(self._folder)

    def compact(self) -> None:
        """Turn the journal into a segment, now."""
        if self._journal.count == 0:
            return
        path = _journal(self._folder, self._number)
        data = _parquet(_journal_rows(path))
        write_whole(self._folder / _segment_name(self._number, data), data, sync=self._sync)
        self._journal.close()
        path.unlink()
        self._number += 1
        self._open_journal()

    def close(self) -> None:
        """Idempotent. The journal stays as it is: it is as durable as a segment."""
        if not self._closed:
            self._journal.close()
            self._closed = True

    def _open_journal(self) -> None:
        self._journal = Journal(_journal(self._folder, self._number), sync=self._sync)
        self._torn_bytes = self._journal.torn_bytes
        self._closed = False


def read_groups(folder: Path) -> Iterator[ScoredGroup]:
    """Every group, in the order of appending; a writer may be at work meanwhile."""
    for origin, rows in _files(folder):
        for row in rows:
            yield row_to_group(row, origin=str(origin))


def read_rows(folder: Path) -> Iterator[GroupRow]:
    """The same as plain rows."""
    for _, rows in _files(folder):
        yield from rows


def _files(folder: Path) -> Iterator[tuple[Path, Sequence[GroupRow]]]:
    number = 0
    while True:
        segment, journal = _segments(folder).get(number), _journal(folder, number)
        if segment is None:
            try:
                yield journal, _journal_rows(journal)
                number += 1
                continue
            except FileNotFoundError:
                segment = _segments(folder).get(number)  # compacted meanwhile, unless there is no more
        if segment is None:
            return
        yield segment, _segment_rows(segment)
        number += 1


def _segments(folder: Path) -> dict[int, Path]:
    return {int(file.name.partition(".")[0]): file for file in folder.glob("[0-9]*.parquet")}


def _segment_name(number: int, data: bytes) -> str:
    return f"{number:06d}.{zlib.crc32(data):08x}.parquet"


def _journal(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.journal"


def _journal_rows(path: Path) -> list[GroupRow]:
    return [cast("GroupRow", json.loads(zlib.decompress(record))) for record in scan(path).records]


def _segment_rows(path: Path) -> list[GroupRow]:
    data = path.read_bytes()
    if path.name != _segment_name(int(path.name.partition(".")[0]), data):
        raise StoreError(f"{path} is damaged: its content does not match the checksum in its name")
    return cast("list[GroupRow]", pq.read_table(pa.BufferReader(data)).to_pylist())


def _parquet(rows: Sequence[GroupRow]) -> bytes:
    table = pa.Table.from_pylist(rows, schema=GROUP_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()
