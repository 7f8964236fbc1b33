"""A set of recorded states in a folder, written once and read lazily.

::

    set.json        what it is made from, how it is divided, and the checksums of the next two
    states.jsonl    the states, a way through a task on each line
    index.parquet   where each state is, and on which side of the split
    blobs/          every screenshot, once

`set.json` is written last: a folder without it holds no set, or one that was not finished.
"""

import contextlib
import hashlib
import shutil
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64
from pydantic import TypeAdapter, ValidationError

from cairn.data.ids import TaskId
from cairn.data.recorded import RecordedState
from cairn.data.task import Split, Task
from cairn.errors import CairnError, ConfigError, SetupError, StoreError
from cairn.store.blobs import BlobFolder
from cairn.store.disk import write_whole, writing
from cairn.store.recorded_rows import dump_way, load_way

SCHEMA_VERSION = 1
_CACHED_LINES = 32
_MANIFEST_FILE = "set.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How tasks are divided: so large a share of each template's is held out, drawn by the seed.

    Between 0 and 1 at least one task of each template is held out, and at least one is not, where it has two.
    """

    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out <= 1 or self.seed < 0:
            raise ConfigError(f"the held-out share lies in [0, 1] and a seed is at least 0, got {self}")

    def divide(self, tasks: Iterable[Task]) -> frozenset[TaskId]:
        """The held-out ones. Depends on the set of tasks, not on their order."""
        by_template: defaultdict[str, set[TaskId]] = defaultdict(set)
        for task in tasks:
            by_template[task.template.id].add(task.id)
        return frozenset(name for names in by_template.values() for name in self._drawn(names))

    def _drawn(self, names: Collection[TaskId]) -> list[TaskId]:
        size = round(self.held_out * len(names))
        if 0 < self.held_out < 1 and len(names) > 1:
            size = min(max(size, 1), len(names) - 1)
        return sorted(names, key=lambda name: hashlib.sha256(f"{self.seed}:{name}".encode()).digest())[:size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What `set.json` says."""

    schema: int
    origin: str  # for people: what the states were made from
    states: int
    tasks: int
    held_out_states: int
    held_out_tasks: int
    division: Division
    states_crc: int
    index_crc: int


_MANIFEST = TypeAdapter(Manifest)


class _IndexRow(TypedDict):
    template: str
    task: int
    held_out: bool
    episode: str
    step: int
    source: str
    kind: str
    offset: int
    length: int
    crc: int
    place: int  # among the states of its line


_INDEX = pa.schema(
    [
        ("template", pa.string()),
        ("task", pa.int32()),
        ("held_out", pa.bool_()),
        ("episode", pa.string()),
        ("step", pa.int32()),
        ("source", pa.string()),
        ("kind", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("crc", pa.uint32()),
        ("place", pa.int32()),
    ]
)


def holds_set(folder: Path) -> bool:
    """Whether there is a set, finished."""
    return (folder / _MANIFEST_FILE).is_file()


def require_no_set(folder: Path) -> None:
    """Raise a `ConfigError` where a new set would have no place: before what goes into it costs anything."""
    if holds_set(folder):
        raise ConfigError(f"{folder} holds recorded states already: choose another directory")


class RecordedWriter:
    """The only writer of a new set. Nothing is a set before `finish`."""

    def __init__(self, folder: Path, *, origin: str) -> None:
        """`origin` tells people what the states are made from. A folder that holds a set already is refused."""
        require_no_set(folder)
        self._folder = folder
        self._origin = origin
        self._made = [path for path in (folder / "blobs", folder) if not path.exists()]  # the rest is somebody else's
        self.blobs = BlobFolder(folder / "blobs")
        with writing(folder / "states.jsonl"):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / "states.jsonl").open("wb")
        self._way: list[RecordedState] = []
        self._names: set[tuple[str, str]] = set()
        self._rows: list[_IndexRow] = []
        self._tasks: dict[TaskId, Task] = {}
        self._end = self._crc = 0

    def add(self, state: RecordedState) -> None:
        """Take in a state; those of one way that come one after the other share a line.

        `finish` decides on which side its task stands, wherever it stood before.
        """
        state = replace(state, task=replace(state.task, split=Split.TRAIN))
        name = (state.task.template.id, state.name)
        if name in self._names:
            raise ConfigError(f"two states of {state.task.template.id} are called {state.name}")
        self._names.add(name)
        if self._way and _way_of(self._way[0]) != _way_of(state):
            self._flush()
        self._way.append(state)
        self._tasks.setdefault(state.task.id, state.task)

    def finish(self, division: Division, *, held_out: Collection[TaskId] | None = None) -> Manifest:
        """Divide the tasks, or take over which ones are `held_out`, and make it a set. Durable on return."""
        self._flush()
        self._file.close()
        if not self._rows:
            raise ConfigError(f"{self._origin} gave no state: there is nothing to write")
        kept = division.divide(self._tasks.values()) if held_out is None else frozenset(held_out)
        for row in self._rows:
            row["held_out"] = f"{row['template']}#{row['task']}" in kept
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(self._rows, schema=_INDEX), sink, compression="zstd")
        index = sink.getvalue().to_pybytes()
        write_whole(self._folder / "index.parquet", index, sync=True)
        manifest = Manifest(
            schema=SCHEMA_VERSION,
            origin=self._origin,
            states=len(self._rows),
            tasks=len(self._tasks),
            held_out_states=sum(row["held_out"] for row in self._rows),
            held_out_tasks=len(kept & self._tasks.keys()),
            division=division,
            states_crc=self._crc,
            index_crc=zlib.crc32(index),
        )
        write_whole(self._folder / _MANIFEST_FILE, _MANIFEST.dump_json(manifest, indent=1) + b"\n", sync=True)
        return manifest

    def abandon(self) -> None:
        """Leave the folder without a set, and without what was written for one. Harmless after `finish`."""
        self._file.close()
        if holds_set(self._folder):
            return
        with contextlib.suppress(OSError):  # what cannot be removed is no set either
            for name in ("states.jsonl", "index.parquet"):
                (self._folder / name).unlink(missing_ok=True)
            if self._folder / "blobs" in self._made:
                shutil.rmtree(self._folder / "blobs", ignore_errors=True)
            if self._folder in self._made:
                self._folder.rmdir()  # unless something else is in it

    def _flush(self) -> None:
        if not self._way:
            return
        line = dump_way(self._way).encode() + b"\n"
        with writing(self._folder / "states.jsonl"):
            self._file.write(line)
        crc = zlib.crc32(line)
        self._rows += [
            _IndexRow(
                template=state.task.template.id,
                task=state.task.index,
                held_out=False,
                episode=state.episode,
                step=state.step,
                source=state.source,
                kind=state.kind,
                offset=self._end,
                length=len(line),
                crc=crc,
                place=place,
            )
            for place, state in enumerate(self._way)
        ]
        self._end += len(line)
        self._crc = zlib.crc32(line, self._crc)
        self._way = []


def _way_of(state: RecordedState) -> tuple[TaskId, str, str]:
    return state.task.id, state.episode, state.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What the index says of a state, without reading it."""

    template: str
    task: int
    split: Split
    episode: str
    step: int
    source: str
    kind: str


class RecordedSet:
    """A set, opened: the index is in memory, and states are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_manifest(folder)
        self._index = _read_index(folder, self.manifest)
        self._held_out = self._index["held_out"].to_numpy()
        self._lines: OrderedDict[int, tuple[RecordedState, ...]] = OrderedDict()

    def __len__(self) -> int:
        return self._index.num_rows

    @property
    def blobs(self) -> BlobFolder:
        """The screenshots."""
        return BlobFolder(self.folder / "blobs")

    @property
    def templates(self) -> tuple[str, ...]:
        """In order of appearance."""
        return tuple(dict.fromkeys(self._index["template"].to_pylist()))

    def listed(self) -> list[Listed]:
        """What the index says of every state."""
        columns = ("template", "task", "held_out", "episode", "step", "source", "kind")
        rows = zip(*(self._index[name].to_pylist() for name in columns), strict=True)
        return [
            Listed(
                template=template,
                task=task,
                split=_side(held_out),
                episode=episode,
                step=step,
                source=source,
                kind=kind,
            )
            for template, task, held_out, episode, step, source, kind in rows
        ]

    def of(self, split: Split, *, templates: Collection[str] = ()) -> "States":
        """The states on one side of the split, of these templates or of all; in the order of recording."""
        wanted = self._held_out == (split is Split.HELD_OUT)
        if templates:
            known = np.array(self._index["template"].to_pylist(), dtype=object)
            wanted &= np.isin(known, list(templates))
        return States(self, np.flatnonzero(wanted))

    def everything(self) -> "States":
        """Every state, of both sides."""
        return States(self, np.arange(len(self)))

    def read(self, row: int) -> RecordedState:
        """The state of one row of the index."""
        offset, place = (int(self._index[name][row].as_py()) for name in ("offset", "place"))
        if offset in self._lines:
            self._lines.move_to_end(offset)
        else:
            self._lines[offset] = self._read_line(row, offset)
            while len(self._lines) > _CACHED_LINES:
                self._lines.popitem(last=False)
        return self._lines[offset][place]

    def _read_line(self, row: int, offset: int) -> tuple[RecordedState, ...]:
        path = self.folder / "states.jsonl"
        length, crc = (int(self._index[name][row].as_py()) for name in ("length", "crc"))
        try:
            with path.open("rb") as file:
                file.seek(offset)
                line = file.read(length)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
        if zlib.crc32(line) != crc:
            raise StoreError(f"{path} is damaged at byte {offset}: the line is not the one that was written")
        try:
            return load_way(line.decode(), split=_side(bool(self._held_out[row])))
        except (ValueError, KeyError, IndexError, TypeError, CairnError) as error:
            raise StoreError(f"{path} is of another version at byte {offset}: {error}") from error


class States(Sequence[RecordedState]):
    """Some states of a set. Each is read when it is asked for."""

    def __init__(self, states: RecordedSet, rows: Int64[np.ndarray, " N"]) -> None:
        self._set = states
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.shape[0]

    def chosen(self, places: Sequence[int]) -> "States":
        """Those at these places, in that order."""
        return States(self._set, self._rows[np.array(places, np.int64)])

    @overload
    def __getitem__(self, index: int) -> RecordedState: ...

    @overload
    def __getitem__(self, index: slice) -> "States": ...

    def __getitem__(self, index: int | slice) -> "RecordedState | States":
        if isinstance(index, slice):
            return States(self._set, self._rows[index])
        return self._set.read(int(self._rows[index]))


def _side(held_out: bool) -> Split:  # noqa: FBT001  (a column of the index)
    return Split.HELD_OUT if held_out else Split.TRAIN


def _read_manifest(folder: Path) -> Manifest:
    path = folder / _MANIFEST_FILE
    try:
        found = _MANIFEST.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        fix = "`cairn data record`, `collect` and `import` make a set"
        raise ConfigError(f"{folder} holds no recorded states: set.json is missing; {fix}") from None
    except ValidationError as error:
        raise StoreError(f"{path} is damaged: {error.errors()[0]['msg']}") from error
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from error
    if found.schema != SCHEMA_VERSION:
        raise StoreError(f"{path} has schema {found.schema}, and this version of Cairn reads {SCHEMA_VERSION}")
    return found


def _read_index(folder: Path, manifest: Manifest) -> pa.Table:
    path = folder / "index.parquet"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    if zlib.crc32(data) != manifest.index_crc:
        raise StoreError(f"{path} is damaged: its content does not match the checksum in set.json")
    return pq.read_table(pa.BufferReader(data))


def verify(folder: Path) -> Manifest:
    """Read all of the states' bytes too, and compare them with their checksum."""
    manifest, path, crc = _read_manifest(folder), folder / "states.jsonl", 0
    _read_index(folder, manifest)
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            crc = zlib.crc32(block, crc)
    if crc != manifest.states_crc:
        raise StoreError(f"{path} is damaged: its content does not match the checksum in set.json")
    return manifest
