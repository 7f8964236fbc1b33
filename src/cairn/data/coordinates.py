"""How models say where something is: their own coordinates, and the fractions of the screen that all else speaks."""

from dataclasses import dataclass
from enum import StrEnum

from cairn.data.action import Point
from cairn.errors import InvariantError

_THOUSANDTHS = 1000
_SLACK = 1e-9


class CoordinateSpace(StrEnum):
    """What a model family's numbers count."""

    FRACTIONS = "fractions"  # of the screen, 0 to 1
    THOUSANDTHS = "thousandths"  # of the screen, 0 to 1000
    PIXELS = "pixels"  # of the image as the model sees it, after its processor has resized it


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The coordinates of one image; its size matters to `PIXELS` alone."""

    space: CoordinateSpace
    width: int = _THOUSANDTHS
    height: int = _THOUSANDTHS

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise InvariantError(f"an image has at least one pixel, got {self.width} x {self.height}")

    @property
    def extent(self) -> tuple[float, float]:
        """The numbers of the right and the bottom edge."""
        match self.space:
            case CoordinateSpace.FRACTIONS:
                return 1.0, 1.0
            case CoordinateSpace.THOUSANDTHS:
                return float(_THOUSANDTHS), float(_THOUSANDTHS)
            case CoordinateSpace.PIXELS:
                return float(self.width), float(self.height)

    def say(self, point: Point) -> tuple[str, str]:
        """The numbers of a point: whole ones, or fractions with three places."""
        width, height = self.extent
        if self.space is CoordinateSpace.FRACTIONS:
            return f"{point.x:.3f}", f"{point.y:.3f}"
        return str(round(point.x * width)), str(round(point.y * height))

    def read(self, x: float, y: float) -> Point | None:
        """The point of two numbers; None outside the image."""
        width, height = self.extent
        across, down = x / width, y / height
        if not (-_SLACK <= across <= 1 + _SLACK and -_SLACK <= down <= 1 + _SLACK):  # false for nan, too
            return None
        return Point(min(1.0, max(0.0, across)), min(1.0, max(0.0, down)))

    def steps(self, share: float, *, down: bool) -> int:
        """A share of the screen's height or width in units of the image; thousandths where it counts fractions."""
        return round(share * self._units(down=down))

    def share(self, steps: float, *, down: bool) -> float:
        """What `steps` is the number of."""
        return steps / self._units(down=down)

    def _units(self, *, down: bool) -> float:
        width, height = self.extent
        if self.space is CoordinateSpace.FRACTIONS:
            return float(_THOUSANDTHS)
        return height if down else width
