"""PyAutoGUI scripts, read and never run: their first action, by the parameters of PyAutoGUI's own functions."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from cairn.data.action import Action, Click, DoubleClick, Drag, Hover, Key, Point, RightClick, Scroll, Type
from cairn.formats.places import Picture
from cairn.formats.rows import DamageError, as_number

_WHEEL = 0.5  # of the screen, however far the script turns it
_KEYS = {
    "enter": "Enter", "return": "Enter", "tab": "Tab", "esc": "Escape", "escape": "Escape", "space": "Space",
    "backspace": "Backspace", "delete": "Delete", "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft",
    "right": "ArrowRight", "pageup": "PageUp", "pagedown": "PageDown", "home": "Home", "end": "End",
    "ctrl": "Control", "ctrlleft": "Control", "shift": "Shift", "alt": "Alt", "command": "Meta", "win": "Meta",
}  # fmt: skip
_PACE = frozenset({"interval", "duration", "tween", "logScreenshot", "_pause"})  # how, not what: passed over
_LAST = ("logScreenshot", "_pause")
_ONE_BUTTON = ("x", "y", "interval", "duration", "tween", *_LAST)
_WHEELED = ("clicks", "x", "y", *_LAST)
_WRITTEN = ("message", "interval", *_LAST)
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "click": ("x", "y", "clicks", "interval", "button", "duration", "tween", *_LAST),
    "leftClick": _ONE_BUTTON,
    "rightClick": _ONE_BUTTON,
    "doubleClick": ("x", "y", "interval", "button", "duration", "tween", *_LAST),
    "moveTo": ("x", "y", "duration", "tween", *_LAST),
    "dragTo": ("x", "y", "duration", "tween", "button", *_LAST, "mouseDownUp"),
    "scroll": _WHEELED,
    "vscroll": _WHEELED,
    "hscroll": _WHEELED,
    "write": _WRITTEN,
    "typewrite": _WRITTEN,
    "press": ("keys", "presses", "interval", *_LAST),
}
_CLICKS: Mapping[tuple[object, object], type[Click | DoubleClick | RightClick]] = {
    ("left", 1): Click,
    ("left", 2): DoubleClick,
    ("right", 1): RightClick,
}
_BUTTONS = {"left": "left", "primary": "left", "right": "right", "secondary": "right"}


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    values: tuple[object, ...]
    named: Mapping[str, object]

    def __str__(self) -> str:
        told = [*(repr(value) for value in self.values), *(f"{name}={value!r}" for name, value in self.named.items())]
        return f"pyautogui.{self.name}({', '.join(told)})"


def script_action(script: str, picture: Picture) -> Action:
    """The first action of a script; a move that a drag follows is where the drag begins."""
    if "\0" in script:
        raise DamageError("the script is not Python: it holds a NUL")
    try:
        calls = _calls(ast.parse(script.strip()))
    except SyntaxError as error:
        raise DamageError(f"the script is not Python: {error.msg}, in its line {error.lineno}") from error
    except (RecursionError, MemoryError) as error:
        raise DamageError("the script is nested too deep to be read as Python") from error
    match calls:
        case [_Call("moveTo") as move, _Call("dragTo") as drag, *_]:
            return _drag(move, drag, picture)
        case [call, *_]:
            return _done(call, picture)
        case _:
            raise DamageError("the script calls nothing")


def _calls(script: ast.Module) -> list[_Call]:
    calls: list[_Call] = []
    for statement in script.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.Expr(
                ast.Call(func=ast.Attribute(value=ast.Name(id="pyautogui"), attr=name), args=args, keywords=keywords)
            ):
                named = {str(keyword.arg): _literal(name, keyword.value) for keyword in keywords}
                calls.append(_Call(name, tuple(_literal(name, arg) for arg in args), named))
            case _:
                raise DamageError(f"the script does more than to call pyautogui: {ast.unparse(statement):.60}")
    return calls


def _literal(name: str, node: ast.expr) -> object:
    try:
        value = cast("object", ast.literal_eval(node))
        repr(value)  # messages show it: a whole number of thousands of digits cannot be
    except (ValueError, TypeError) as error:  # TypeError: a list as a dictionary's key
        raise DamageError(f"pyautogui.{name} has an argument that is no plain value") from error
    return value


# ── calls ─────────────────────────────────────────────────────────────────────


def _done(call: _Call, picture: Picture) -> Action:
    if call.name == "hotkey":
        return Key("+".join(_key(key) for key in _chord(call)))
    given = _bound(call)
    match call.name:
        case "click" | "leftClick" | "rightClick" | "doubleClick":
            action = _click(call, given, picture)
        case "moveTo":
            action = Hover(_point(call, given, picture))
        case "scroll" | "vscroll" | "hscroll":
            action = _scroll(call, given, picture)
        case "write" | "typewrite":
            action = Type(_message(given.pop("message", None)))
        case "press":
            action = Key(_key(_pressed(given)))
        case _:
            raise DamageError(f"pyautogui.{call.name} needs a move before it: a drag has two ends")
    _require_nothing(call, given)
    return action


def _bound(call: _Call) -> dict[str, object]:
    """What is given for each parameter that matters, by its name."""
    known = _PARAMETERS.get(call.name)
    if known is None:
        raise DamageError(f"pyautogui.{call.name} is no action that is known here: {', '.join(_PARAMETERS)}, hotkey")
    if len(call.values) > len(known):
        raise DamageError(f"{call!s:.80} has more arguments than pyautogui.{call.name} takes")
    given = dict(zip(known, call.values, strict=False))
    for name, value in call.named.items():
        if name not in known or name in given:
            raise DamageError(f"{call!s:.80}: pyautogui.{call.name} has no {name}, or has it already")
        given[name] = value
    return {name: value for name, value in given.items() if name not in _PACE}


def _require_nothing(call: _Call, left: Mapping[str, object]) -> None:
    if left:
        raise DamageError(f"{call!s:.80}: no action that is known here has {', '.join(left)}")


def _click(call: _Call, given: dict[str, object], picture: Picture) -> Action:
    place = _point(call, given, picture)
    button = given.pop("button", "right" if call.name == "rightClick" else "left")
    clicks = given.pop("clicks", 2 if call.name == "doubleClick" else 1)
    pressed = _BUTTONS.get(button.lower()) if isinstance(button, str) else None
    kind = _CLICKS.get((pressed, clicks)) if type(clicks) is int else None
    if kind is None:
        raise DamageError(
            f"{call!s:.80} is no single action: a click is one or two with the left button, or one with the right"
        )
    return kind(place)


def _drag(move: _Call, drag: _Call, picture: Picture) -> Action:
    begins, ends = _bound(move), _bound(drag)
    action = Drag(_point(move, begins, picture), _point(drag, ends, picture))
    button, released = ends.pop("button", "left"), ends.pop("mouseDownUp", True)
    if not isinstance(button, str) or _BUTTONS.get(button.lower()) != "left" or released is not True:
        raise DamageError(f"{drag!s:.80} is no drag that is known here: the left button is pressed, and released")
    _require_nothing(move, begins)
    _require_nothing(drag, ends)
    return action


def _scroll(call: _Call, given: dict[str, object], picture: Picture) -> Action:
    turned = as_number(given.pop("clicks", None), "clicks")
    if not turned:
        raise DamageError(f"{call!s:.80} does not turn the wheel")
    target = _point(call, given, picture) if {"x", "y"} & given.keys() else None
    if call.name == "hscroll":
        return Scroll(target, _WHEEL if turned > 0 else -_WHEEL, 0.0)
    return Scroll(target, 0.0, -_WHEEL if turned > 0 else _WHEEL)


def _point(call: _Call, given: dict[str, object], picture: Picture) -> Point:
    """Of `x` and `y`; PyAutoGUI takes both in `x`, too."""
    x, y = given.pop("x", None), given.pop("y", None)
    if y is None and isinstance(x, list | tuple):
        both = cast("list[object] | tuple[object, ...]", x)
        x, y = both if len(both) == 2 else (None, None)
    if x is None or y is None:
        raise DamageError(f"{call!s:.80} depends on where the pointer is: a place is two numbers")
    if any(not isinstance(value, int | float) or isinstance(value, bool) for value in (x, y)):
        raise DamageError(f"a place is two numbers, got {x!r:.40}, {y!r:.40}")
    return picture.point(as_number(x, "x"), as_number(y, "y"))


def _message(said: object) -> str:
    if not isinstance(said, str):
        raise DamageError(f"what is written is one string here, got {said!r:.60}")
    return said


def _pressed(given: dict[str, object]) -> object:
    keys, presses = given.pop("keys", None), given.pop("presses", 1)
    if type(presses) is not int or presses != 1:
        raise DamageError(f"a key is pressed once by one action, and the script presses it {presses!r:.40} times")
    if isinstance(keys, list | tuple):
        listed = cast("list[object] | tuple[object, ...]", keys)
        if len(listed) != 1:
            raise DamageError(f"one key is pressed by one action, and the script presses {len(listed)}, one by one")
        return listed[0]
    return keys


def _chord(call: _Call) -> tuple[object, ...]:
    if call.named.keys() - _PACE:
        raise DamageError(f"{call!s:.80}: pyautogui.hotkey takes keys, and no {', '.join(call.named)}")
    match call.values:
        case ([_, *_] as keys,):
            return tuple(cast("list[object]", keys))
        case ():
            raise DamageError("pyautogui.hotkey without a key presses nothing")
        case keys:
            return keys


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise DamageError(f"a key is a name, got {key!r:.60}")
    return _KEYS.get(key.lower(), key)
