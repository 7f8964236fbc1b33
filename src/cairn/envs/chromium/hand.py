"""Performs actions on a page as trusted input. The page has `__cairn`, which knows its elements by number."""

import json
from dataclasses import dataclass
from typing import cast

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
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
from cairn.envs.chromium.keys import KeyStroke, parse_chord
from cairn.envs.chromium.observe import Screen
from cairn.envs.chromium.page import Page

_LONG_PRESS_MS = 1000
_LONGEST_WAIT = 60.0
_MIDDLE = Point(0.5, 0.5)
_PERFORMED = ""


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float
    kind: str = ""  # "field", "select", "list" or neither


class Hand:
    """Turns one action into events. What cannot be done is said in a message; a broken browser raises."""

    def __init__(self, page: Page, *, screen: Screen) -> None:
        self._page = page
        self._screen = screen

    async def perform(self, action: Action) -> str:
        """Do it; the answer is empty, or what the agent must be told."""
        match action:
            case Click() | DoubleClick() | RightClick() | LongPress() | Hover():
                return await self._point(action)
            case Drag():
                return await self._drag(action)
            case Scroll():
                return await self._scroll(action)
            case Type():
                return await self._type(action)
            case Key():
                return await self._key(action)
            case Wait() | Answer() | Finish() | Open() | Back() | Home() | Invalid():
                return _without_input(action)

    # ── the pointer ───────────────────────────────────────────────────────────

    async def _point(self, action: Click | DoubleClick | RightClick | LongPress | Hover) -> str:
        place = await self._locate(action.target)
        if place is None:
            return _missing(action.target)
        x, y = place.x, place.y
        match action:
            case Click():
                await self._page.click(x, y)
            case DoubleClick():
                await self._page.click(x, y, count=2)
            case RightClick():
                await self._page.click(x, y, button="right")
            case LongPress():
                await self._page.press(x, y)
                await self._page.evaluate(f"__cairn.act({_LONG_PRESS_MS},{x},{y})")
                await self._page.release(x, y)
            case Hover():
                await self._page.hover(x, y)
        return _PERFORMED

    async def _drag(self, action: Drag) -> str:
        end = await self._locate(action.target)
        if end is None:
            return _missing(action.target)
        start = await self._locate(action.source)
        if start is None:
            return _missing(action.source)
        await self._page.drag((start.x, start.y), (end.x, end.y))
        return _PERFORMED

    async def _scroll(self, action: Scroll) -> str:
        target = _MIDDLE if action.target is None else action.target
        place = await self._locate(target)
        if place is None:
            return _missing(target)
        await self._page.wheel(place.x, place.y, action.dx * self._screen.width, action.dy * self._screen.height)
        return _PERFORMED

    # ── the keyboard ──────────────────────────────────────────────────────────

    async def _key(self, action: Key) -> str:
        stroke = parse_chord(action.keys)
        if stroke is None:
            return f"unknown key {action.keys!r}"
        await self._page.strike(stroke)
        return _PERFORMED

    async def _type(self, action: Type) -> str:
        if action.target is None:
            await self._page.insert(action.text)
            return _PERFORMED
        place = await self._locate(action.target)
        if place is None:
            return _missing(action.target)
        if place.kind in ("select", "list") and not isinstance(action.target, Point):
            return await self._choose(action.target, action.text, place)
        await self._page.click(place.x, place.y)
        if not await self._page.evaluate("__cairn.editable()"):
            return f"{_named(action.target)} takes no text"
        replaced = ("Control+a",) if action.text else ("Control+a", "Delete")
        await self._page.insert(action.text, after=_strokes(*replaced))
        return _PERFORMED

    async def _choose(self, select: int, text: str, place: _Place) -> str:
        """Choose an option by its text. In a drop-down the arrow keys choose: its list is no part of the page."""
        option = _quoted(text)
        if place.kind == "list":
            spot = cast("list[float] | None", await self._page.evaluate(f"__cairn.optionPlace({select}, {option})"))
            if spot is None:
                return f"element {select} has no option {text!r}"
            await self._page.click(spot[0], spot[1])
            return _PERFORMED
        found = await self._page.evaluate(f"__cairn.option({select}, {option})")
        wanted, chosen, focused = cast("tuple[int, int, bool]", found)
        if wanted < 0:
            return f"element {select} has no option {text!r}"
        if not focused:
            await self._page.click(place.x, place.y)
        arrow = "ArrowDown" if wanted > chosen else "ArrowUp"
        await self._page.strike(*_strokes(*[arrow] * abs(wanted - chosen)))
        return _PERFORMED

    # ── places ────────────────────────────────────────────────────────────────

    async def _locate(self, target: Target) -> _Place | None:
        if isinstance(target, Point):
            width, height = self._screen.width, self._screen.height
            return _Place(min(target.x * width, width - 0.5), min(target.y * height, height - 0.5))
        found = cast("tuple[float, float, str] | None", await self._page.evaluate(f"__cairn.locate({int(target)})"))
        return None if found is None else _Place(*found)


def wait_ms(action: Action) -> float:
    """How long of the page's own time an action asks to let pass, in ms; 0 for all but `Wait`."""
    return 1000.0 * min(_LONGEST_WAIT, max(0.0, action.seconds)) if isinstance(action, Wait) else 0.0


def _without_input(action: Wait | Answer | Finish | Open | Back | Home | Invalid) -> str:
    match action:
        case Wait() | Answer() | Finish():
            return _PERFORMED
        case Open() | Back() | Home():
            return f"{type(action).__name__.lower()} is not available here"
        case Invalid():
            return action.reason


def _strokes(*names: str) -> list[KeyStroke]:
    strokes = [parse_chord(name) for name in names]
    return [stroke for stroke in strokes if stroke is not None]


def _quoted(text: str) -> str:
    return json.dumps(text)


def _named(target: Target) -> str:
    return f"the place ({target.x:.2f}, {target.y:.2f})" if isinstance(target, Point) else f"element {target}"


def _missing(target: Target) -> str:
    return f"no {_named(target)}"
