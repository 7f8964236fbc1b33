"""TFRecord files of `tf.train.Example`, read without TensorFlow.

A record is its length (8 bytes), a checksum of the length, the data, and a checksum of the data, which is not looked
at: files are compressed with gzip as a rule, and that has one of its own. An Example is a protocol buffer: a map from
names to lists of bytes, floats or whole numbers.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from cairn.formats.rows import DamageError, Entry, reason_of

_HEADER = struct.Struct("<QI")
_LARGEST = 1 << 30  # bytes of a record: what is longer is no length
_TEXT = frozenset({"goal", "actions", "step_instructions"})
_LISTS = frozenset({"screenshots", "actions", "step_instructions", "screenshot_widths", "screenshot_heights"})
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5  # wire types


def examples(path: Path) -> Iterator[Entry]:
    """The records of a file, counted from 1; nothing can be read after one that is cut off."""
    number = 0
    try:
        with _opened(path) as file:
            while True:
                where = f"{path}, record {number + 1}"
                try:
                    data = _record(file)
                except DamageError as error:
                    yield Entry(where=where, problem=str(error))
                    return
                if data is None:
                    return
                number += 1
                yield _entry(where, data)
    except (OSError, EOFError, zlib.error) as error:
        told = reason_of(error) if isinstance(error, OSError) else error
        yield Entry(where=f"{path}, record {number + 1}", problem=f"cannot be read: {told}")


def _entry(where: str, data: bytes) -> Entry:
    try:
        return Entry(where=where, value={name: _plain(name, found) for name, found in example(data).items()})
    except (DamageError, UnicodeDecodeError) as error:
        return Entry(where=where, problem=f"is no tf.train.Example: {error}")


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb")


def _record(file: IO[bytes]) -> bytes | None:
    header = file.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise DamageError("is cut off in its header")
    length, _ = _HEADER.unpack(header)
    if length > _LARGEST:
        raise DamageError(f"claims to hold {length} bytes: the file is damaged, or no TFRecord")
    data = file.read(length)
    if len(data) < length or len(file.read(4)) < 4:
        raise DamageError(f"is cut off: {len(data)} of {length} bytes are there")
    return data


def _plain(name: str, found: list[bytes] | list[float] | list[int]) -> object:
    values = [v.decode() if isinstance(v, bytes) and name in _TEXT else v for v in found]
    return values if name in _LISTS or len(values) != 1 else values[0]


# ── protocol buffers ──────────────────────────────────────────────────────────


def example(data: bytes) -> dict[str, list[bytes] | list[float] | list[int]]:
    """The features of a serialised `tf.train.Example`."""
    found: dict[str, list[bytes] | list[float] | list[int]] = {}
    for features in _messages(data, 1):
        for pair in _messages(features, 1):
            name = b"".join(_messages(pair, 1)).decode()
            found[name] = _feature(b"".join(_messages(pair, 2)))
    return found


def _feature(data: bytes) -> list[bytes] | list[float] | list[int]:
    for field, _, value in _fields(data):
        if isinstance(value, bytes):
            match field:
                case 1:
                    return list(_messages(value, 1))
                case 2:
                    return _floats(value)
                case 3:
                    return _whole(value)
                case _:
                    break
    return []


def _floats(data: bytes) -> list[float]:
    found: list[float] = []
    for field, wire, value in _fields(data):
        if field == 1 and wire in {_BYTES, _SHORT} and isinstance(value, bytes):
            if len(value) % 4:
                raise DamageError("a list of floats is cut off")
            found += struct.unpack(f"<{len(value) // 4}f", value)
    return found


def _whole(data: bytes) -> list[int]:
    found: list[int] = []
    for field, _, value in _fields(data):
        if field != 1:
            continue
        if isinstance(value, int):
            found.append(_signed(value))
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(_signed(number))
    return found


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    return (value for field, _, value in _fields(data) if field == wanted and isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            number, at = _varint(data, at)
            yield key >> 3, wire, number
            continue
        size, at = _size(data, at, wire)
        if at + size > len(data):
            raise DamageError("a field reaches beyond the end")
        yield key >> 3, wire, data[at : at + size]
        at += size


def _size(data: bytes, at: int, wire: int) -> tuple[int, int]:
    match wire:
        case 1:
            return 8, at
        case 2:
            return _varint(data, at)
        case 5:
            return 4, at
        case _:
            raise DamageError(f"unknown wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DamageError("a number is cut off")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
