"""The token layout of the pixel policy: what its model computes and its codec says. Pure arithmetic over ids."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from cairn.data.action import Point
from cairn.data.observation import Box
from cairn.errors import InvariantError


class Verb(StrEnum):
    """Everything that the pixel policy can say besides a plain click and a span of the goal."""

    DOUBLE_CLICK = "double_click"
    RIGHT_CLICK = "right_click"
    LONG_PRESS = "long_press"
    HOVER = "hover"
    SCROLL_UP = "scroll_up"
    SCROLL_DOWN = "scroll_down"
    SCROLL_LEFT = "scroll_left"
    SCROLL_RIGHT = "scroll_right"
    DRAG = "drag"
    BACK = "back"
    HOME = "home"
    WAIT = "wait"
    FINISH = "finish"
    INFEASIBLE = "infeasible"
    ENTER = "key_enter"
    TAB = "key_tab"
    ESCAPE = "key_escape"
    BACKSPACE = "key_backspace"
    DELETE = "key_delete"
    SPACE = "key_space"
    UP = "key_up"
    DOWN = "key_down"
    LEFT = "key_left"
    RIGHT = "key_right"
    SELECT_ALL = "key_select_all"
    COPY = "key_copy"
    PASTE = "key_paste"


POINTED = frozenset({
    Verb.DOUBLE_CLICK, Verb.RIGHT_CLICK, Verb.LONG_PRESS, Verb.HOVER,
    Verb.SCROLL_UP, Verb.SCROLL_DOWN, Verb.SCROLL_LEFT, Verb.SCROLL_RIGHT,
})  # fmt: skip
"""Verbs that a location follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop:
    """The part of the screen that the policy sees and points at, in screen pixels."""

    screen_width: int = 160
    screen_height: int = 210
    left: int = 0
    top: int = 50
    width: int = 160
    height: int = 160

    def __post_init__(self) -> None:
        inside = self.left >= 0 and self.top >= 0 and self.width > 0 and self.height > 0
        if not (
            inside and self.left + self.width <= self.screen_width and self.top + self.height <= self.screen_height
        ):
            raise InvariantError(f"the crop must lie on its screen: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelVocabulary:
    """Ids in order: specials, words, shapes, characters (prompts only); verbs, span starts, span ends, from, at.

    An answer is `at` (a click), `verb` (a key, …), `verb at`, `drag from at` or `start end` (type that span of the
    goal). Its last token ends it, and which tokens may follow depends on the last one alone.
    """

    PAD: ClassVar[int] = 0
    IMAGE: ClassVar[int] = 1
    ACT: ClassVar[int] = 2
    TURN: ClassVar[int] = 3  # opens a past action
    FAILED: ClassVar[int] = 4  # a past action that the policy was told something about
    UNSAID: ClassVar[int] = 5  # a past action that these tokens cannot express
    SPECIALS: ClassVar[int] = 8
    SHAPES: ClassVar[int] = 64
    VERBS: ClassVar[tuple[Verb, ...]] = tuple(Verb)
    CHARACTERS: ClassVar[str] = "abcdefghijklmnopqrstuvwxyz0123456789#$%&@+-*/=.,:;!?'\"()[]<>_"

    grid: int = 40  # locations per side
    words: int = 512  # hash buckets of goal words
    span: int = 32  # goal words that can be pointed at

    @property
    def word(self) -> int:
        """First word bucket."""
        return self.SPECIALS

    @property
    def shape(self) -> int:
        """First word shape."""
        return self.word + self.words

    @property
    def character(self) -> int:
        """First character; the last of its range stands for every other one."""
        return self.shape + self.SHAPES

    @property
    def verb(self) -> int:
        """First verb, and so the first token that an answer may hold."""
        return self.character + len(self.CHARACTERS) + 1

    @property
    def start(self) -> int:
        """First span start."""
        return self.verb + len(self.VERBS)

    @property
    def end(self) -> int:
        """First span end (the word at which it ends, inclusive)."""
        return self.start + self.span

    @property
    def source(self) -> int:
        """First place that a drag starts from."""
        return self.end + self.span

    @property
    def place(self) -> int:
        """First location."""
        return self.source + self.cells

    @property
    def cells(self) -> int:
        """Locations in the grid."""
        return self.grid * self.grid

    @property
    def size(self) -> int:
        """Number of ids."""
        return self.place + self.cells

    def verb_id(self, verb: Verb) -> int:
        """The id of `verb`."""
        return self.verb + self.VERBS.index(verb)

    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer: locations, span ends, and verbs that stand alone."""
        alone = {self.verb_id(v) for v in self.VERBS if v not in POINTED and v is not Verb.DRAG}
        return frozenset(alone | set(range(self.end, self.source)) | set(range(self.place, self.size)))

    def cell(self, point: Point, crop: Crop) -> int | None:
        """The cell of the grid that holds `point`; None outside the crop."""
        across = (point.x * crop.screen_width - crop.left) / crop.width * self.grid
        down = (point.y * crop.screen_height - crop.top) / crop.height * self.grid
        if not (-1e-6 <= across <= self.grid + 1e-6 and -1e-6 <= down <= self.grid + 1e-6):
            return None
        column = min(self.grid - 1, max(0, int(across + 1e-6)))
        return min(self.grid - 1, max(0, int(down + 1e-6))) * self.grid + column

    def center(self, cell: int, crop: Crop) -> Point:
        """The middle of `cell` on the screen."""
        row, column = divmod(cell, self.grid)
        x = crop.left + (column + 0.5) * crop.width / self.grid
        y = crop.top + (row + 0.5) * crop.height / self.grid
        return Point(x / crop.screen_width, y / crop.screen_height)

    def cells_within(self, box: Box, crop: Crop, *, margin: float = 0.15) -> tuple[int, ...]:
        """Cells whose middle lies in `box` shrunk by `margin` of its size on every side; else the cell of its middle.

        Empty where the middle of the box lies outside the crop too.
        """
        left, right = box.left + margin * box.width, box.left + (1 - margin) * box.width
        top, bottom = box.top + margin * box.height, box.top + (1 - margin) * box.height
        columns = [c for c in range(self.grid) if left <= self.center(c, crop).x <= right]
        rows = [r for r in range(self.grid) if top <= self.center(r * self.grid, crop).y <= bottom]
        inside = tuple(row * self.grid + column for row in rows for column in columns)
        middle = self.cell(box.center, crop)
        return inside or (() if middle is None else (middle,))
