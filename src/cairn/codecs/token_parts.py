"""Which part of an answer each of its tokens says: what it thinks, what it does, or where. Total and pure."""

import re
from collections.abc import Callable
from enum import StrEnum

import numpy as np
from jaxtyping import Int32

from cairn.codecs.pixel import PixelCodec
from cairn.ports import Codec, ReadableCodec


class Part(StrEnum):
    """What a token says. The tags around a thought belong to it; everything else of the action to what is done."""

    THOUGHT = "thought"
    ACTION = "action"
    PLACE = "place"  # an element's number, or a point


TokenParts = Callable[[Int32[np.ndarray, " C"]], list[Part]]

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLACES = re.compile(r"\[\s*\d[\d\s.,]*\]|\(\s*\d[\d\s.,]*\)|<point>[^<]*</point>|(?<=\(')\w*\d+(?=')")
_ACTS = re.compile(r"</think>|^Action:", re.MULTILINE)


def token_parts(codec: Codec) -> TokenParts | None:
    """For answers of `codec`; None where they can be told neither by their text nor by their tokens."""
    if isinstance(codec, PixelCodec):
        return lambda ids: [Part.PLACE if codec.points(int(i)) else Part.ACTION for i in ids]
    return (lambda ids: _of_text(codec, ids)) if isinstance(codec, ReadableCodec) else None


def _of_text(codec: ReadableCodec, ids: Int32[np.ndarray, " C"]) -> list[Part]:
    ends = [len(codec.read(ids[: end + 1]).text) for end in range(ids.shape[0])]
    letters = letter_parts(codec.read(ids).text)
    found: list[Part] = []
    start = 0
    for end in ends:
        said = letters[start:end] or [Part.ACTION]  # an end token is no text, and belongs to the action
        found.append(Part.PLACE if Part.PLACE in said else said[-1])
        start = max(start, end)
    return found


def letter_parts(text: str) -> list[Part]:
    """The same of each character. Numbers in a text that is typed, which stands in double quotes, are no place."""
    acts = list(_ACTS.finditer(text))
    begins = 0
    if acts:
        begins = acts[-1].end() if acts[-1].group() == "</think>" else acts[-1].start()
    found = [Part.THOUGHT] * begins + [Part.ACTION] * (len(text) - begins)
    plain = _QUOTED.sub(lambda quoted: " " * len(quoted.group()), text)
    for place in _PLACES.finditer(plain, begins):
        found[place.start() : place.end()] = [Part.PLACE] * (place.end() - place.start())
    return found
