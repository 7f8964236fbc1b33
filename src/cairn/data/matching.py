"""When two actions are the same: what disagreement between samples, and agreement with an expert, are made of.

The rules are those of "Where to Learn and How Far to Roll Out": places within 5 % of the screen are one place, swipes
of one direction are one swipe, and any typed text equals any other. What is not said there is completed here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum

from cairn.data.action import (
    Action,
    Answer,
    Click,
    DoubleClick,
    Drag,
    Finish,
    Hover,
    Invalid,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
)
from cairn.data.ids import ElementId
from cairn.data.observation import Box, Observation
from cairn.errors import ConfigError

_NEAR = 1e-9  # the tolerance is inclusive, and 0.55 - 0.5 is a little more than 0.05


class TextRule(StrEnum):
    """When two typed texts are the same."""

    ANY = "any"  # always: the published rule
    EXACT = "exact"  # but for case and spaces
    OVERLAP = "overlap"  # where their words' F1 is at least one half


class PlaceRule(StrEnum):
    """When two places that are clicked on are the same."""

    NEAR = "near"  # within the tolerance: the published rule
    ELEMENT = "element"  # on one interactive element, wherever on it; where neither is on any, within the tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The rules; `tolerance` is a share of the screen's width and of its height, inclusive."""

    tolerance: float = 0.05
    text: TextRule = TextRule.ANY
    places: PlaceRule = PlaceRule.NEAR

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ConfigError(f"a tolerance is a share of the screen in [0, 1), got {self.tolerance}")

    def same(self, one: Action, other: Action, seen: Observation) -> bool:
        """Whether both do the same in the state `seen`. Unparsable answers are one class of their own. Symmetric."""
        if type(one) is not type(other):
            return False
        match one, other:
            case (
                (Click(a), Click(b))
                | (DoubleClick(a), DoubleClick(b))
                | (RightClick(a), RightClick(b))
                | (LongPress(a), LongPress(b))
                | (Hover(a), Hover(b))
            ):
                return self._same_target(a, b, seen)
            case Drag(), Drag():
                return self._near(one.source, other.source, seen) and self._near(one.target, other.target, seen)
            case Type(), Type():
                return self._same_field(one, other, seen) and self._same_text(one.text, other.text)
            case Answer(), Answer():
                return self._same_text(one.text, other.text)
            case _:
                return _same_argument(one, other)

    def agrees(self, action: Action, expert: Action, seen: Observation) -> bool:
        """Whether the action is the expert's; an unparsable answer never is."""
        return not isinstance(action, Invalid) and self.same(action, expert, seen)

    def clusters(self, actions: Sequence[Action], seen: Observation) -> tuple[tuple[int, ...], ...]:
        """A partition of the actions' indices into those that are the same, whatever order they come in.

        A tolerance is not transitive. Actions are sorted, and each one joins the first cluster whose first member it
        equals, or begins one.
        """
        found: list[list[int]] = []
        for index in sorted(range(len(actions)), key=lambda i: _rank(actions[i], seen)):
            for cluster in found:
                if self.same(actions[cluster[0]], actions[index], seen):
                    cluster.append(index)
                    break
            else:
                found.append([index])
        return tuple(tuple(sorted(cluster)) for cluster in found)

    def _same_target(self, one: Target, other: Target, seen: Observation) -> bool:
        if self.places is PlaceRule.ELEMENT:
            hit, struck = element_under(one, seen), element_under(other, seen)
            if hit is not None or struck is not None:
                return hit == struck
        return self._near(one, other, seen)

    def _near(self, one: Target, other: Target, seen: Observation) -> bool:
        if not isinstance(one, Point) and not isinstance(other, Point):
            return one == other
        a, b = _place(one, seen), _place(other, seen)
        if a is None or b is None:
            return False
        reach = self.tolerance + _NEAR
        return abs(a.x - b.x) <= reach and abs(a.y - b.y) <= reach

    def _same_field(self, one: Type, other: Type, seen: Observation) -> bool:
        """Text that goes wherever the focus is equals text for a named field."""
        return one.target is None or other.target is None or self._same_target(one.target, other.target, seen)

    def _same_text(self, one: str, other: str) -> bool:
        match self.text:
            case TextRule.ANY:
                return True
            case TextRule.EXACT:
                return _words(one) == _words(other)
            case TextRule.OVERLAP:
                return token_f1(one, other) >= 0.5


def token_f1(one: str, other: str) -> float:
    """Harmonic mean of precision and recall of the words, case aside; 1 where both have none."""
    a, b = Counter(_words(one)), Counter(_words(other))
    if not a or not b:
        return float(a == b)
    return 2 * (a & b).total() / (a.total() + b.total())


def _words(text: str) -> list[str]:
    return text.casefold().split()


def element_under(target: Target, seen: Observation) -> ElementId | None:
    """The interactive element that is pointed at; of several, one inside the other, the smallest."""
    if not isinstance(target, Point):
        return target
    under = [e for e in seen.elements if e.interactive and _inside(target, e.box)]
    return min(under, key=lambda e: e.box.width * e.box.height).id if under else None


def _inside(point: Point, box: Box) -> bool:
    return box.left <= point.x <= box.left + box.width and box.top <= point.y <= box.top + box.height


def _place(target: Target, seen: Observation) -> Point | None:
    if isinstance(target, Point):
        return target
    element = seen.element(target)
    return element.box.center if element is not None else None


def _same_argument(one: Action, other: Action) -> bool:
    """Of two actions of one type that have neither place nor text."""
    match one, other:
        case Scroll(), Scroll():
            return _direction(one) == _direction(other)
        case Key(), Key():
            return _chord(one) == _chord(other)
        case Open(), Open():
            return one.what.strip().rstrip("/").casefold() == other.what.strip().rstrip("/").casefold()
        case Finish(), Finish():
            return one.status is other.status
        case _:
            return True  # back, home, wait, and what could not be parsed


def _direction(scroll: Scroll) -> str:
    """Of the longer way; a wheel that is not turned has none."""
    if abs(scroll.dx) > abs(scroll.dy):
        return "right" if scroll.dx > 0 else "left"
    return "" if scroll.dy == 0 else "down" if scroll.dy > 0 else "up"


def _chord(key: Key) -> frozenset[str]:
    """The keys that are down together; a plus sign of its own is a key."""
    parts = key.keys.casefold().split("+")
    return frozenset(part.strip() or "+" for part in parts)


def _rank(action: Action, seen: Observation) -> tuple[str, float, float, str]:
    """Type first, then place, then everything else."""
    aim = aim_of(action)
    place = _place(aim, seen) if aim is not None else None
    x, y = (place.x, place.y) if place is not None else (-1.0, -1.0)
    return type(action).__name__, x, y, repr(astuple(action))


def aim_of(action: Action) -> Target | None:
    """Where an action begins; None where it has no place."""
    match action:
        case (
            Click(target)
            | DoubleClick(target)
            | RightClick(target)
            | LongPress(target)
            | Hover(target)
            | Drag(target, _)
        ):
            return target
        case Type(_, target) | Scroll(target, _, _):
            return target
        case _:
            return None
