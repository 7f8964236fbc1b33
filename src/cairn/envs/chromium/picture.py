"""Cutting a PNG to its top left corner without decoding its pixels.

PNG stores each row as differences to the pixels at its left and above (PNG specification, section 9), so
the corner's rows are the beginnings of the picture's rows: nothing to the right or below is needed.
"""

import struct
import zlib
from collections.abc import Iterator

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">IIBBBBB")  # width, height, bits, colour type, compression, filter, interlace
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by colour type: grey, RGB, grey and alpha, RGBA
_FAST = 1


def cut_png(picture: bytes, *, width: int, height: int) -> bytes:
    """The picture's top left `width` x `height` pixels, as PNG of the same kind; 8 bits a channel, no interlace.

    Raises `ValueError` where it is no such picture, or smaller than that.
    """
    header = b""
    packed: list[bytes] = []
    for kind, data in _chunks(picture):
        if kind == b"IHDR":
            header = data
        elif kind == b"IDAT":
            packed.append(data)
    if len(header) != _HEADER.size or not packed:
        raise ValueError("not a PNG, or a part of one")
    full_width, full_height, bits, colour, *_, interlace = _HEADER.unpack(header)
    if bits != 8 or colour not in _CHANNELS or interlace:
        raise ValueError(f"a PNG of colour type {colour} with {bits} bits, interlace {interlace}, cannot be cut")
    if full_width < width or full_height < height:
        raise ValueError(f"a picture of {full_width} x {full_height} has no corner of {width} x {height}")
    row, kept = 1 + full_width * _CHANNELS[colour], 1 + width * _CHANNELS[colour]  # a byte names the row's filter
    try:
        rows = zlib.decompress(b"".join(packed))
    except zlib.error as error:
        raise ValueError(f"damaged: {error}") from error
    if len(rows) != row * full_height:
        raise ValueError("its rows are incomplete")
    corner = b"".join([rows[start : start + kept] for start in range(0, row * height, row)])
    cut = _HEADER.pack(width, height, bits, colour, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", cut) + _chunk(b"IDAT", zlib.compress(corner, _FAST)) + _chunk(b"IEND", b"")


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and data of each chunk; stops where the rest makes no chunk."""
    at = len(_SIGNATURE)
    while picture.startswith(_SIGNATURE) and at + 12 <= len(picture):
        (size,) = struct.unpack_from(">I", picture, at)
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        at += 12 + size


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
