"""Rows of public data sets: where each stands, what its fields hold, and what is said of one that is damaged."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from cairn.data.recorded import RecordedState
from cairn.errors import ConfigError

Row: TypeAlias = Mapping[str, object]
_LARGEST = 1e9  # of what a field may count


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
            for state in states:
                _require_writable(state)
        except DamageError as error:
            yield DamagedRow(where=entry.where, reason=readable(str(error), longest=600))
        except RecursionError:
            yield DamagedRow(where=entry.where, reason="is nested too deep to be read")
        else:
            yield from states


def _require_writable(state: RecordedState) -> None:
    """Half a surrogate pair is a string to Python, and nothing that a file could hold."""
    start = state.start
    said = (state.task.template.id, state.episode, start.goal, start.sub_goal, *astuple(start.expert))
    for one in said:
        if isinstance(one, str) and readable(one, longest=len(one)) != one:
            raise DamageError(f"holds half a surrogate pair, which is no text: {readable(one)}")


def readable(text: str, *, longest: int = 200) -> str:
    """Of text from elsewhere, what a message can show: without halves of surrogate pairs, cut in its middle."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-longest // 4 :]}"
    return text.encode("utf-8", "backslashreplace").decode()


def reason_of(error: OSError) -> str:
    """Why a file cannot be read, in words alone."""
    return os.strerror(error.errno) if error.errno else str(error)


# ── files ─────────────────────────────────────────────────────────────────────


def files_in(path: Path, *endings: str) -> list[Path]:
    """The file itself, or those of a folder that end so, by name; a `ConfigError` where there are none."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.glob("*") if file.name.endswith(endings))
    if not found:
        raise ConfigError(f"{path} is no file, and no folder with files that end in {' or '.join(endings)}")
    return found


def parquet_rows(path: Path) -> Iterator[Entry]:
    """The rows of a Parquet file, counted from 1."""
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=32):
                for row in batch.to_pylist():
                    number += 1
                    yield Entry(where=f"{path}, row {number}", value=row)
    except OSError as error:
        told = f"cannot be read: {reason_of(error)}" if error.errno else f"is not Parquet, or damaged: {error}"
        yield Entry(where=str(path), problem=told)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        yield Entry(where=str(path), problem=f"is not Parquet, or damaged: {error}")


# ── fields ────────────────────────────────────────────────────────────────────


def fields(value: object) -> Row:
    """A row as its named fields."""
    if not isinstance(value, dict):
        raise DamageError(f"is {type(value).__name__}, not an object with named fields")
    return cast("Row", value)


def text(row: Row, name: str, *, default: str | None = None) -> str:
    """A string; numbers are written out."""
    value = row.get(name, default)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    if not isinstance(value, str):
        raise DamageError(f"{name} must be a string, got {value!r:.60}" if name in row else f"{name} is missing")
    return value


def number(row: Row, name: str) -> float:
    """A finite number."""
    return as_number(row.get(name), name) if name in row else _missing(name)


def as_number(value: object, name: str) -> float:
    """`value`, which stands in the field `name`, as a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DamageError(f"{name} must be a number, got {value!r:.60}")
    if not abs(value) < _LARGEST:
        raise DamageError(f"{name} must be a number between -{_LARGEST:.0e} and {_LARGEST:.0e}")
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
