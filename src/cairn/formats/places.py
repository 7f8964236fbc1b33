"""Pictures of public data sets, and their coordinates as fractions of the screen."""

import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from cairn.data.action import Point
from cairn.data.ids import ImageId
from cairn.data.observation import Box, Observation
from cairn.formats.files import content
from cairn.formats.rows import DamageError
from cairn.ports import BlobStore

_EDGE = 0.01  # annotations may lie a little outside the picture: so large a share of it is forgiven


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A stored screenshot and its size in pixels."""

    image: ImageId
    width: int
    height: int

    def point(self, x: float, y: float) -> Point:
        """A place in pixels."""
        return fraction(x / self.width, y / self.height)

    def box(self, left: float, top: float, right: float, bottom: float) -> Box:
        """A rectangle by its edges, in pixels."""
        return edges(left / self.width, top / self.height, right / self.width, bottom / self.height)

    def shown(self, *, message: str = "") -> Observation:
        """The screenshot alone: no elements are known."""
        return Observation(
            image=self.image, elements=(), accessibility="", url="", digest=self.image[:32], message=message
        )


class Pictures:
    """Puts pictures into a blob store, each file once."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._known: dict[Path, Picture] = {}

    def file(self, path: Path) -> Picture:
        """The picture in a file."""
        if path not in self._known:
            self._known[path] = self.data(content(path, "picture"), name=str(path))
        return self._known[path]

    def data(self, data: bytes, *, name: str = "in the row") -> Picture:
        """The picture in a PNG, JPEG or WebP file's bytes."""
        try:
            with Image.open(io.BytesIO(data)) as picture:
                width, height = picture.size
                kind = picture.format
                picture.verify()
        except Image.DecompressionBombError as error:
            raise DamageError(f"the picture {name} is too large for a screenshot: {error}") from error
        except UnidentifiedImageError as error:  # its message names an object in memory
            raise DamageError(f"the picture {name} is damaged: it does not begin as a picture does") from error
        except (OSError, SyntaxError, ValueError) as error:
            raise DamageError(f"the picture {name} is damaged: {error}") from error
        if kind not in {"PNG", "JPEG", "WEBP"}:
            raise DamageError(f"the picture {name} is {kind}: only PNG, JPEG and WebP are read")
        return Picture(image=self._blobs.put(data), width=width, height=height)


def fraction(x: float, y: float) -> Point:
    """A place in fractions of the screen; one that lies off it by more than a hair is damage."""
    return Point(_on_screen(x, "x"), _on_screen(y, "y"))


def edges(left: float, top: float, right: float, bottom: float) -> Box:
    """A rectangle by its edges, in fractions of the screen."""
    if not (left <= right and top <= bottom):
        raise DamageError(f"a box whose right or bottom edge is before its left or top one: {left, top, right, bottom}")
    corner, other = fraction(left, top), fraction(right, bottom)
    if corner.x == other.x or corner.y == other.y:
        raise DamageError(f"a box without width or height, which nothing can hit: {left, top, right, bottom}")
    return Box(left=corner.x, top=corner.y, width=other.x - corner.x, height=other.y - corner.y)


def _on_screen(value: float, name: str) -> float:
    if not -_EDGE <= value <= 1 + _EDGE:
        raise DamageError(f"{name} lies off the screen, at {value:.4g} of it")
    return min(1.0, max(0.0, value))


def holding(boxes: list[Box], place: Point) -> Box | None:
    """The smallest box that holds the place; None where none does. One without width or height holds nothing."""
    inside = [b for b in boxes if b.left <= place.x <= b.left + b.width and b.top <= place.y <= b.top + b.height]
    return min((b for b in inside if b.width > 0 and b.height > 0), key=lambda b: b.width * b.height, default=None)
