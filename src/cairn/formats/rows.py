"""Rows of public data sets: where each stands, what its fields hold, and what is said of one that is damaged."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from cairn.data.recorded import RecordedState
from cairn.errors import ConfigError

Row: TypeAlias = Mapping[str, object]


class DamageError(ValueError):
    """A row does not hold what its format promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a file: its value, or why it has none."""

    where: str  # file and line
    value: object = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRow:
    """A row that gives no state, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


Found: TypeAlias = RecordedState | DamagedRow


def states_of(entries: Iterable[Entry], read: Callable[[Entry], Sequence[RecordedState]]) -> Iterator[Found]:
    """The states of each row, or its damage. A row of which one state is damaged gives none."""
    for entry in entries:
        if entry.problem:
            yield DamagedRow(where=entry.where, reason=entry.problem)
            continue
        try:
            states = read(entry)
        except (DamageError, OSError) as error:
            yield DamagedRow(where=entry.where, reason=str(error))
        else:
            yield from states


# ── files ─────────────────────────────────────────────────────────────────────


def files_in(path: Path, *endings: str) -> list[Path]:
    """The file itself, or those of a folder that end so, by name; a `ConfigError` where there are none."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.glob("*") if file.name.endswith(endings))
    if not found:
        raise ConfigError(f"{path} is no file, and no folder with files that end in {' or '.join(endings)}")
    return found


def json_rows(path: Path) -> Iterator[Entry]:
    """The elements of a JSON array, or the lines of a .jsonl file; of an array, those before any broken JSON."""
    if path.suffix == ".jsonl":
        yield from _lines(path)
        return
    cursor = JsonCursor.of(path)
    try:
        for line in cursor.array():
            yield Entry(where=f"{path}:{line}", value=cursor.value())
    except json.JSONDecodeError as error:
        yield broken(path, error)


def broken(path: Path, error: json.JSONDecodeError) -> Entry:
    """What is said of JSON that ends, or goes wrong, in the middle."""
    return Entry(where=f"{path}:{error.lineno}", problem=f"is not JSON: {error.msg}")


def _lines(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                yield Entry(where=where, value=json.loads(line))
            except ValueError as error:
                yield Entry(where=where, problem=f"is not JSON: {error}")


def parquet_rows(path: Path) -> Iterator[Entry]:
    """The rows of a Parquet file, counted from 1."""
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=32):
                for row in batch.to_pylist():
                    number += 1
                    yield Entry(where=f"{path}, row {number}", value=row)
    except (pa.ArrowException, OSError) as error:
        yield Entry(where=str(path), problem=f"is not Parquet, or damaged: {error}")


class JsonCursor:
    """Walks through JSON from its beginning, and knows on which line it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = json.JSONDecoder()
        self._at = 0
        self._counted = 0  # up to where lines are
        self._line = 1

    @classmethod
    def of(cls, path: Path) -> "JsonCursor":
        """At the beginning of a file; what is not UTF-8 in it stands as a mark."""
        return cls(path.read_text(encoding="utf-8", errors="replace"))

    @property
    def line(self) -> int:
        """Of the next value."""
        self._skip()
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def value(self) -> object:
        """The next value, whole."""
        self._skip()
        found, self._at = cast("tuple[object, int]", self._decoder.raw_decode(self._text, self._at))
        return found

    def array(self) -> Iterator[int]:
        """The line of each element; the caller takes the element before it asks for the next one."""
        self._expect("[")
        if self._found("]"):
            return
        while True:
            yield self.line
            if self._found("]"):
                return
            self._expect(",")

    def members(self) -> Iterator[str]:
        """The name of each member of an object; the caller takes its value before it asks for the next one."""
        self._expect("{")
        if self._found("}"):
            return
        while True:
            name = str(self.value())
            self._expect(":")
            yield name
            if self._found("}"):
                return
            self._expect(",")

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t\r\n\ufeff":
            self._at += 1

    def _found(self, mark: str) -> bool:
        self._skip()
        if self._text[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._found(mark):
            raise json.JSONDecodeError(f"expected {mark!r}", self._text, min(self._at, len(self._text)))


# ── fields ────────────────────────────────────────────────────────────────────


def fields(value: object) -> Row:
    """A row as its named fields."""
    if not isinstance(value, dict):
        raise DamageError(f"is {type(value).__name__}, not an object with named fields")
    return cast("Row", value)


def text(row: Row, name: str, *, default: str | None = None) -> str:
    """A string; numbers are written out."""
    value = row.get(name, default)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DamageError(f"{name} must be a string, got {value!r}" if name in row else f"{name} is missing")
    return value


def number(row: Row, name: str) -> float:
    """A finite number."""
    return as_number(row.get(name), name) if name in row else _missing(name)


def as_number(value: object, name: str) -> float:
    """`value`, which stands in the field `name`, as a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e9:
        raise DamageError(f"{name} must be a number, got {value!r}")
    return float(value)


def numbers(row: Row, name: str, *, counts: Sequence[int]) -> tuple[float, ...]:
    """A list of so many numbers."""
    found = tuple(as_number(value, name) for value in items(row, name))
    if len(found) not in counts:
        raise DamageError(f"{name} must hold {' or '.join(map(str, counts))} numbers, got {len(found)}")
    return found


def items(row: Row, name: str) -> Sequence[object]:
    """A list."""
    value = row.get(name)
    if not isinstance(value, list):
        raise DamageError(f"{name} must be a list, got {value!r:.60}" if name in row else f"{name} is missing")
    return cast("Sequence[object]", value)


def _missing(name: str) -> float:
    raise DamageError(f"{name} is missing")
