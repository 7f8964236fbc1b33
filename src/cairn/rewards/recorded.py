"""One answer against what the expert did at a recorded state: its kind, its places, its texts."""

from dataclasses import dataclass
from enum import StrEnum

from cairn.data.action import (
    Action,
    Answer,
    Click,
    DoubleClick,
    Drag,
    Finish,
    Hover,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
)
from cairn.data.matching import Matching
from cairn.data.observation import Box, Observation
from cairn.data.task import Recorded
from cairn.errors import ConfigError, VerifierError
from cairn.rewards.grounding import point_in_box, point_near, word_overlap

_NEAR = 1e-9
_RULES = Matching()  # of arguments that have neither place nor text: directions, chords, statuses


class Place(StrEnum):
    """When a point is where it was meant to be."""

    INCLUSIVE = "inclusive"  # in the box, edges included
    STRICT = "strict"  # in the box, edges not
    NEAR = "near"  # within a share of the screen from the middle of the box


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRule:
    """How places are compared; `share` is for `NEAR`, and in the other rules for points that no box is known of."""

    place: Place = Place.INCLUSIVE
    share: float | None = None  # of the screen's diagonal in fractions; None: a box must be known

    def __post_init__(self) -> None:
        if self.place is Place.NEAR and self.share is None:
            raise ConfigError('the rule "near" needs a share of the screen, such as 0.14')

    def hits(self, target: Target, meant: Target, seen: Observation, *, box: Box | None) -> bool:
        """Whether an answer's target is the one that was meant, whose box is `box` where one is known."""
        if not isinstance(target, Point) and target == meant:
            return True
        point, middle = _point(target, seen), box.center if box is not None else _point(meant, seen)
        if point is None:
            return False
        if box is not None and self.place is not Place.NEAR:
            return point_in_box(point, box, strict=self.place is Place.STRICT)
        if self.share is None or middle is None:
            raise VerifierError(f"no box is known of {meant}: record one, or give the term a share of the screen")
        return point_near(point, middle, share=self.share + _NEAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRule:
    """When two texts are the same: word for word, or where the F1 of their sets of words is at least `least`."""

    least: float | None = 0.5  # None: exact, but for case and spaces
    strict: bool = False  # more than `least`

    def same(self, one: str, other: str) -> bool:
        if self.least is None:
            return one.casefold().split() == other.casefold().split()
        score = word_overlap(one, other)
        return score > self.least if self.strict else score >= self.least


def same_kind(action: Action, expert: Action) -> bool:
    """Whether both are clicks, both are texts typed, and so on. An answer without an action is of no kind."""
    return type(action) is type(expert)


def in_place(action: Action, start: Recorded, rule: HitRule) -> bool:
    """UI-R1's second part: a click or drag of the right kind hits what was meant; others are right by their kind."""
    if not same_kind(action, start.expert):
        return False
    given, meant = pointed(action), pointed(start.expert)
    return all(
        rule.hits(one, other, start.observation, box=box)
        for one, other, box in zip(given, meant, boxes(start), strict=True)
    )


def same_parameters(
    action: Action, start: Recorded, *, place: HitRule, text: WordRule, scroll_place: bool = False
) -> bool:
    """Right kind, and every argument right: places by `place`, texts by `text`, everything else exactly.

    A field that only one of two typing actions names does not count. With `scroll_place` a wheel must also be turned
    over what was meant, where the expert named it (Mobile-R1's swipes).
    """
    if not in_place(action, start, place):
        return False
    expert, seen = start.expert, start.observation
    match action, expert:
        case Type(one, field), Type(other, wanted):
            named = field is None or wanted is None or place.hits(field, wanted, seen, box=_box_of(wanted, start))
            return named and text.same(one, other)
        case (Answer(one), Answer(other)) | (Open(one), Open(other)):
            return text.same(one, other)
        case Scroll(over, _, _), Scroll(meant, _, _):
            over_it = not scroll_place or meant is None or _turned_over(over, meant, start, place)
            return over_it and _RULES.same(action, expert, seen)
        case (Key(), Key()) | (Finish(), Finish()):
            return _RULES.same(action, expert, seen)
        case _:
            return True


def _turned_over(over: Target | None, meant: Target, start: Recorded, place: HitRule) -> bool:
    box = _box_of(meant, start)
    if box is None and place.share is None:
        return True  # a swipe through the open: there is nothing to hit
    return over is not None and place.hits(over, meant, start.observation, box=box)


def pointed(action: Action) -> tuple[Target, ...]:
    """The places without which the action would be another one: of clicks, and both ends of drags."""
    match action:
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            return (target,)
        case Drag(source, target):
            return (source, target)
        case _:
            return ()


def boxes(start: Recorded) -> tuple[Box | None, ...]:
    """What the expert's places may be hit in, one for each; None where no box is known."""
    return tuple(_box_of(target, start, first=place == 0) for place, target in enumerate(pointed(start.expert)))


def lacks_box(start: Recorded) -> bool:
    """Whether the expert's action has a place of which no box is known."""
    return None in boxes(start)


def _box_of(target: Target, start: Recorded, *, first: bool = True) -> Box | None:
    """The recorded box, else that of the element, else that of the smallest usable element under the point."""
    if first and start.target is not None:
        return start.target
    if not isinstance(target, Point):
        element = start.observation.element(target)
        return None if element is None else element.box
    under = [e.box for e in start.observation.elements if e.interactive and point_in_box(target, e.box)]
    return min(under, key=lambda box: box.width * box.height, default=None)


def text_of(action: Action) -> str:
    """What an action says in words: text typed or answered, an address, keys, a direction. Else nothing."""
    match action:
        case Type(text, _) | Answer(text):
            return text
        case Open(what):
            return what
        case Key(keys):
            return keys
        case Scroll(_, dx, dy):
            if abs(dx) > abs(dy):
                return "right" if dx > 0 else "left"
            return "" if dy == 0 else "down" if dy > 0 else "up"
        case _:
            return ""


def answered_box(action: Action, seen: Observation) -> Box | None:
    """The box that an answer names: of its element, or between both ends of a drag over open ground; else None."""
    match action:
        case Drag(Point() as one, Point() as other):
            left, right = sorted((one.x, other.x))
            top, bottom = sorted((one.y, other.y))
            return Box(left=left, top=top, width=right - left, height=bottom - top)
        case _:
            named = next((target for target in pointed(action) if not isinstance(target, Point)), None)
            element = None if named is None else seen.element(named)
            return None if element is None else element.box


def _point(target: Target, seen: Observation) -> Point | None:
    if isinstance(target, Point):
        return target
    element = seen.element(target)
    return None if element is None else element.box.center
