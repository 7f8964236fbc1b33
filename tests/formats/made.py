"""Small data sets in the public formats, made here."""

import gzip
import io
import json
import struct
import zlib
from pathlib import Path

from PIL import Image

from cairn.data.recorded import RecordedState
from cairn.formats.rows import DamagedRow, Found

WIDTH, HEIGHT = 200, 400


def png(*, width: int = WIDTH, height: int = HEIGHT, shade: int = 0, kind: str = "PNG") -> bytes:
    packed = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 0, 0)).save(packed, kind)
    return packed.getvalue()


def png_header(width: int, height: int) -> bytes:
    """The beginning of a PNG that claims to be of this size."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT")
    packed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def picture(folder: Path, name: str, *, width: int = WIDTH, height: int = HEIGHT, shade: int = 0) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(width=width, height=height, shade=shade))
    return name


def rows(path: Path, values: list[object]) -> Path:
    """A JSON array with a row on each line, the first on line 2; or JSON lines."""
    lines = [json.dumps(value) for value in values]
    text = "\n".join(lines) if path.suffix == ".jsonl" else "[\n" + ",\n".join(lines) + "\n]\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def apart(found: list[Found]) -> tuple[list[RecordedState], list[DamagedRow]]:
    states = [one for one in found if isinstance(one, RecordedState)]
    return states, [one for one in found if isinstance(one, DamagedRow)]


# ── TFRecord ──────────────────────────────────────────────────────────────────


def varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features: dict[str, list[bytes] | list[int]]) -> bytes:
    """A serialised tf.train.Example."""
    pairs = b""
    for name, values in features.items():
        if values and isinstance(values[0], bytes):
            listed = field(1, b"".join(field(1, value) for value in values if isinstance(value, bytes)))
        else:
            packed = b"".join(varint(value & (1 << 64) - 1) for value in values if isinstance(value, int))
            listed = field(3, field(1, packed))
        pairs += field(1, field(1, name.encode()) + field(2, listed))
    return field(1, pairs)


def records(path: Path, examples: list[bytes], *, packed: bool = True) -> Path:
    data = b"".join(struct.pack("<QI", len(one), 0) + one + b"\0\0\0\0" for one in examples)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path
