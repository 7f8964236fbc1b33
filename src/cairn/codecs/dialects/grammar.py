"""What a dialect is made of, and what several of them share: places, ways to scroll, names of keys, quotations."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cairn.codecs.answer_parts import NO_THOUGHT
from cairn.codecs.dialects.literals import Value
from cairn.data.action import Action, Drag, FinishStatus, Invalid, Point, Scroll, Target
from cairn.data.answer import AnswerShape, AnswerText
from cairn.data.coordinates import Frame
from cairn.data.observation import Observation

HALF = 0.5
"""How far a scroll goes where a dialect says no amount: half of the screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """One dialect: pure functions between actions and text. `read` is total; `say` gives None for what it cannot."""

    system: str
    """What the model is told of the format, with `{right}` and `{bottom}` for the numbers of the screen's edges."""

    say: Callable[[Action, Observation, Frame], str | None]
    read: Callable[[str, Frame], Action]
    parts: Callable[[str], AnswerText]
    """What a reward may look at besides the action. Total, as `read` is."""

    thinks: bool = False  # it is asked for a thought
    bare: "Grammar | None" = None  # of one that thinks: the same without a thought (UI-R1-E's NOTHINK)
    by_number: bool = False  # elements are named by their numbers, and so the page is shown as text
    fills: bool = False  # typing may name its field; elsewhere the field is clicked first

    @property
    def shapes(self) -> frozenset[AnswerShape]:
        """The forms that are asked for, or taken without being asked for."""
        return frozenset(AnswerShape) if self.thinks else frozenset({AnswerShape.ANSWER})


def with_bare(dialect: Grammar, *, ask: str, instead: str) -> Grammar:
    """A dialect that thinks, with the same one without thoughts: told `instead` where this one is told `ask`."""

    def say(action: Action, seen: Observation, frame: Frame) -> str | None:
        said = dialect.say(action, seen, frame)
        return None if said is None else said.removeprefix(NO_THOUGHT)

    bare = replace(dialect, system=dialect.system.replace(ask, instead), say=say, thinks=False)
    return replace(dialect, bare=bare)


@dataclass(frozen=True, slots=True)
class Way:
    """A direction as dialects name it, and the sign of the scroll."""

    x: int
    y: int


WAYS: Mapping[str, Way] = {"up": Way(0, -1), "down": Way(0, 1), "left": Way(-1, 0), "right": Way(1, 0)}


def place(target: Target, seen: Observation) -> Point | None:
    """Where a target is; None for an element that is not there."""
    if isinstance(target, Point):
        return target
    element = seen.element(target)
    return None if element is None else element.box.center


def way_of(scroll: Scroll) -> str | None:
    """The direction of a scroll along one axis; None where it goes along both or nowhere."""
    if (scroll.dx == 0) == (scroll.dy == 0):
        return None
    return next(name for name, way in WAYS.items() if way.x * scroll.dx > 0 or way.y * scroll.dy > 0)


def scrolled(name: Value, target: Point | None) -> Scroll:
    """Half a screen in the named direction; `ValueError` where there is no such."""
    way = WAYS.get(text_of(name).strip().casefold())
    if way is None:
        raise ValueError(f"a direction is one of {', '.join(WAYS)}, not {str(name)[:20]!r}")
    return Scroll(target, way.x * HALF, way.y * HALF)


def pair(value: Value) -> tuple[float, float]:
    """Two numbers; the middle of a box where there are four. They may be written inside a text."""
    if isinstance(value, str):
        numbers = [float(n) for n in re.findall(r"-?\d{1,6}(?:\.\d{1,6})?", value[:200])]
    elif isinstance(value, list):
        numbers = [n for n in value if isinstance(n, int | float) and not isinstance(n, bool)]
        numbers = numbers if len(numbers) == len(value) else []
    else:
        numbers = []
    if len(numbers) == 4:
        return (numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2
    if len(numbers) != 2:
        raise ValueError(f"a place is two numbers, not {str(value)[:40]!r}")
    return float(numbers[0]), float(numbers[1])


def point(value: Value, frame: Frame) -> Point:
    """The point that two numbers say; `ValueError` where they say none."""
    x, y = pair(value)
    found = frame.read(x, y)
    if found is None:
        right, bottom = frame.extent
        raise ValueError(f"({x:g}, {y:g}) lies outside the screen, which ends at ({right:g}, {bottom:g})")
    return found


def text_of(value: Value) -> str:
    """A text; `ValueError` where there is none."""
    if not isinstance(value, str):
        raise ValueError(f"a text in quotes was to come, not {str(value)[:40]!r}")  # noqa: TRY004 - a model wrote it
    return value


def number(value: Value) -> float:
    """A finite number of a reasonable size, which may stand in quotes; `ValueError` where there is none."""
    try:
        found = float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        found = None
    if found is None or not abs(found) < 1e6:
        raise ValueError(f"a number was to come, not {str(value)[:40]!r}")
    return found


def seconds(value: Value) -> float:
    """A time to wait, at least 0; a second where none is said."""
    return 1.0 if value is None else max(0.0, number(value))


def status_of(value: Value) -> FinishStatus:
    """Done, unless the model says that it failed."""
    failed = isinstance(value, str) and value.strip().casefold() in {"failure", "fail", "failed", "infeasible"}
    return FinishStatus.INFEASIBLE if failed else FinishStatus.DONE


def coordinates(target: Target, seen: Observation, frame: Frame) -> str | None:
    """A place as `[x, y]`; None for an element that is not there."""
    at = place(target, seen)
    return None if at is None else f"[{', '.join(frame.say(at))}]"


def quoted(text: str) -> str:
    """A text in double quotes, as JSON and Python read it."""
    return json.dumps(text, ensure_ascii=False)


def single_quoted(text: str) -> str:
    """A text in single quotes, as Python reads it."""
    inside = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{inside}'"


def reading(read: Callable[[str, Frame], Action], shape: str) -> Callable[[str, Frame], Action]:
    """`read`, made total: what it raises of a text becomes the reason of an `Invalid`, after what is wanted."""

    def total(text: str, frame: Frame) -> Action:
        try:
            return read(text, frame)
        except ValueError as error:
            return Invalid(text, f"{shape}: {error}")

    return total


def after_thought(text: str) -> str:
    """The text after the last closing tag of a thought; all of it where there is no thought."""
    return text.rpartition("</think>")[2].strip()


def between(text: str, opening: str, closing: str) -> str:
    """What stands between the only pair of these marks; `ValueError` where there is no pair or more than one."""
    parts = text.split(opening)
    if len(parts) != 2 or closing not in parts[1]:
        raise ValueError(f"there is {'no' if len(parts) < 2 else 'not one'} {opening}…{closing}")
    return parts[1].partition(closing)[0].strip()


_KEYS: Mapping[str, str] = {
    "ctrl": "Control",
    "control": "Control",
    "cmd": "Meta",
    "meta": "Meta",
    "alt": "Alt",
    "shift": "Shift",
    "enter": "Enter",
    "return": "Enter",
    "tab": "Tab",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "Backspace",
    "delete": "Delete",
    "del": "Delete",
    "space": "Space",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "insert": "Insert",
}
_SAID_KEYS: Mapping[str, str] = {
    **{browser: name for name, browser in reversed(_KEYS.items()) if not name.startswith("arrow")},
    "Control": "ctrl",
    "Enter": "enter",
    "Escape": "esc",
    "Delete": "delete",
    "Meta": "meta",
}


def chord(names: Sequence[str]) -> str:
    """The browser's name of keys that are pressed together; `ValueError` where none is named."""
    keys = [_KEYS.get(name.strip().casefold(), name.strip()) for name in names if name.strip()]
    if not keys:
        raise ValueError("no key is named")
    return "+".join(keys)


def key_names(chord: str) -> list[str]:
    """The keys of a chord, as desktop dialects call them; a plus sign of its own is a key."""
    parts = ["+"] if chord == "+" else [part or "+" for part in chord.split("+")]
    return [_SAID_KEYS.get(part, part) for part in parts]


def swipe_of(scroll: Scroll, seen: Observation, frame: Frame) -> tuple[str, str] | None:
    """Where a finger starts and ends to scroll so: against the scroll's direction, within the screen."""
    middle = Point(HALF, HALF) if scroll.target is None else place(scroll.target, seen)
    if middle is None or way_of(scroll) is None:
        return None
    start = Point(_inside(middle.x + scroll.dx / 2), _inside(middle.y + scroll.dy / 2))
    end = Point(_inside(middle.x - scroll.dx / 2), _inside(middle.y - scroll.dy / 2))
    first, last = frame.say(start), frame.say(end)
    return None if first == last else (f"[{', '.join(first)}]", f"[{', '.join(last)}]")


def swiped(start: Point, end: Point) -> Scroll:
    """What a finger scrolls that goes from `start` to `end`, along the longer way."""
    dx, dy = start.x - end.x, start.y - end.y
    if dx == dy == 0:
        raise ValueError("a swipe ends elsewhere than it starts")
    middle = Point((start.x + end.x) / 2, (start.y + end.y) / 2)
    return Scroll(middle, dx, 0.0) if abs(dx) > abs(dy) else Scroll(middle, 0.0, dy)


def drag_ends(drag: Drag, seen: Observation, frame: Frame) -> tuple[str, str] | None:
    """Where a drag starts and ends, as `[x, y]` each."""
    start, end = coordinates(drag.source, seen, frame), coordinates(drag.target, seen, frame)
    return None if start is None or end is None else (start, end)


def _inside(value: float) -> float:
    return min(1.0, max(0.0, value))
