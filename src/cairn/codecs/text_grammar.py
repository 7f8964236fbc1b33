"""Actions as short lines of text, and back. Both directions are pure; reading is total.

    click okay [3]            double_click, right_click, long_press and hover likewise
    click (500, 250)          a point, in thousandths of the screen
    type username [2] "bob"   type "bob" (into what is focused)
    drag card [4] to pile [7]
    scroll down list [5]      scroll up 0.25 (mid-screen, a quarter of it; 0.5 where no number is given)
    key Enter                 open https://…   back   home   wait 1   answer "42"   finish   finish infeasible

The label is there because naming what is meant before its number makes the number easier to learn. Reading ignores it:
the number decides, since a label may be cut or stand on several elements.
"""

import json
import re
from collections.abc import Callable, Mapping

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Home,
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
    Wait,
)
from cairn.data.ids import ElementId
from cairn.data.observation import Observation

THOUSANDTHS = 1000
_HALF = 0.5
_NAMED = {
    "click": Click,
    "double_click": DoubleClick,
    "right_click": RightClick,
    "long_press": LongPress,
    "hover": Hover,
}
_VERBS = {kind: name for name, kind in _NAMED.items()}
_WORDS: Mapping[Action, str] = {
    Back(): "back",
    Home(): "home",
    Finish(FinishStatus.DONE): "finish",
    Finish(FinishStatus.INFEASIBLE): "finish infeasible",
}
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
# a point first: a label reaches as far as the next bracket, over a point too
_TARGET = re.compile(r"(?:\(\s*(?P<x>\d{1,4})\s*,\s*(?P<y>\d{1,4})\s*\)|[^\[\]]*\[(?P<id>\d{1,6})\])")
_QUOTED = re.compile(r'"(?P<text>.*)"', re.DOTALL)
_SCROLL = re.compile(
    r"(?P<way>up|down|left|right)(?:\s+(?P<amount>\d+(?:\.\d+)?|\.\d+))?(?:\s+(?P<target>\S.*))?", re.DOTALL
)
_NUMBER = re.compile(r"\d{1,4}(?:\.\d{1,3})?")


def shown_label(label: str, *, longest: int = 30) -> str:
    """A label on one line, without the characters that the grammar needs, cut at `longest` characters."""
    return " ".join(label.translate(_RESERVED).split())[:longest].rstrip()


_RESERVED = str.maketrans({"[": "(", "]": ")", '"': "'"})


# ── saying ────────────────────────────────────────────────────────────────────


def format_action(action: Action, seen: Observation) -> str | None:
    """The line that says `action`; None where the grammar has none (an invalid action, a diagonal scroll)."""
    match action:
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            return f"{_VERBS[type(action)]} {_say_target(target, seen)}"
        case Drag(source, target):
            return f"drag {_say_target(source, seen)} to {_say_target(target, seen)}"
        case Scroll():
            return _say_scroll(action, seen)
        case Type(text, target):
            where = "" if target is None else f"{_say_target(target, seen)} "
            return f"type {where}{_quote(text)}"
        case _:
            return _say_plain(action)


def _say_plain(action: Action) -> str | None:
    match action:
        case Key(keys) if keys == keys.strip() and keys and "\n" not in keys:
            return f"key {keys}"
        case Open(what) if what == what.strip() and what and "\n" not in what:
            return f"open {what}"
        case Wait(seconds) if _NUMBER.fullmatch(number := f"{seconds:.3f}".rstrip("0").rstrip(".")):
            return f"wait {number}"
        case Answer(text):
            return f"answer {_quote(text)}"
        case _:
            return _WORDS.get(action)


def _say_target(target: Target, seen: Observation) -> str:
    if isinstance(target, Point):
        return f"({round(target.x * THOUSANDTHS)}, {round(target.y * THOUSANDTHS)})"
    element = seen.element(target)
    label = shown_label(element.label) if element is not None else ""
    return f"{label} [{target}]".lstrip()


def _say_scroll(action: Scroll, seen: Observation) -> str | None:
    if (action.dx == 0) == (action.dy == 0):
        return None
    moved = action.dx or action.dy
    way = {(False, False): "up", (False, True): "down", (True, False): "left", (True, True): "right"}[
        action.dx != 0, moved > 0
    ]
    size = f"{abs(moved):.2f}".rstrip("0").rstrip(".")
    if float(size) == 0:
        return None
    words = ["scroll", way]
    if float(size) != _HALF:
        words.append(size)
    if action.target is not None:
        words.append(_say_target(action.target, seen))
    return " ".join(words)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# ── reading ───────────────────────────────────────────────────────────────────


def parse_action(text: str) -> Action:
    """The action that a line says; `Invalid`, with what to do better, where it says none."""
    line = text.strip()
    verb, _, rest = line.partition(" ")
    rest = rest.strip()
    if verb in _NAMED:
        target = _read_target(rest)
        return Invalid(line, f"say what to {verb}: {verb} label [number]") if target is None else _NAMED[verb](target)
    reader = _READERS.get(verb)
    if reader is None:
        known = ", ".join([*_NAMED, *_READERS])
        return Invalid(line, f"{verb[:20]!r} is no action; known are {known}" if verb else "the answer is empty")
    return reader(rest) or Invalid(line, f"this is not how {verb} is said: {_EXAMPLES[verb]}")


def _read_target(text: str) -> Target | None:
    found = _TARGET.fullmatch(text)
    if found is None:
        return None
    if found["id"] is not None:
        return ElementId(int(found["id"]))
    x, y = int(found["x"]), int(found["y"])
    return Point(x / THOUSANDTHS, y / THOUSANDTHS) if max(x, y) <= THOUSANDTHS else None


def _read_drag(rest: str) -> Action | None:
    """Tries every " to ", since a label may hold one too."""
    for found in re.finditer(r"\sto\s", rest):
        source, target = _read_target(rest[: found.start()].strip()), _read_target(rest[found.end() :].strip())
        if source is not None and target is not None:
            return Drag(source, target)
    return None


def _read_scroll(rest: str) -> Action | None:
    found = _SCROLL.fullmatch(rest)
    if found is None:
        return None
    target = None if found["target"] is None else _read_target(found["target"].strip())
    if found["target"] is not None and target is None:
        return None
    x, y = _DIRECTIONS[found["way"]]
    amount = float(found["amount"] or _HALF)
    return Scroll(target, x * amount, y * amount)


def _read_type(rest: str) -> Action | None:
    if rest.startswith('"'):
        text = _unquote(rest)
        return None if text is None else Type(text)
    found = _TARGET.match(rest)
    target = None if found is None else _read_target(found.group())
    text = None if found is None else _unquote(rest[found.end() :].strip())
    return None if target is None or text is None else Type(text, target)


def _unquote(text: str) -> str | None:
    found = _QUOTED.fullmatch(text)
    if found is None:
        return None
    try:
        said: object = json.loads(text, strict=False)
    except json.JSONDecodeError:  # a quote or backslash that was not escaped: take it as it stands
        return found["text"]
    return said if isinstance(said, str) else None


def _read_answer(rest: str) -> Action | None:
    text = _unquote(rest) if rest.startswith('"') else rest
    return Answer(text) if text is not None and (text or rest) else None


def _read_wait(rest: str) -> Action | None:
    return Wait(float(rest or 1)) if not rest or _NUMBER.fullmatch(rest) else None


def _read_finish(rest: str) -> Action | None:
    return Finish(FinishStatus(rest or "done")) if rest in {"", *FinishStatus} else None


_READERS: Mapping[str, Callable[[str], Action | None]] = {
    "type": _read_type,
    "drag": _read_drag,
    "scroll": _read_scroll,
    "key": lambda rest: Key(rest) if rest else None,
    "open": lambda rest: Open(rest) if rest else None,
    "back": lambda rest: None if rest else Back(),
    "home": lambda rest: None if rest else Home(),
    "wait": _read_wait,
    "answer": _read_answer,
    "finish": _read_finish,
}
_EXAMPLES = {
    "type": 'type label [number] "text"',
    "drag": "drag label [number] to label [number]",
    "scroll": "scroll down label [number]",
    "key": "key Enter",
    "open": "open what",
    "back": "back",
    "home": "home",
    "wait": "wait 1",
    "answer": 'answer "text"',
    "finish": "finish or finish infeasible",
}
