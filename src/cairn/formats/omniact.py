"""OmniACT (arXiv:2402.17553): one screenshot of a desktop or a web page, and a PyAutoGUI script that does the task.

An index such as `train.json` names for each entry, by paths from its own folder, a `task` (a text file with `Task: …`
and `Output Script:` followed by the script), an `image` and a `box` file with the annotated boxes: an object or a
list of objects with `top_left` and `bottom_right`. The layout of the box files is from memory of the release: where
one differs, the state has no target box. Coordinates are pixels of the image.

Only the first action of a script is recorded: what the screen shows after it is not known.
"""

import ast
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from cairn.data.action import Action, Click, DoubleClick, Drag, Hover, Key, Point, RightClick, Scroll, Type
from cairn.data.matching import aim_of
from cairn.data.observation import Box
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.places import Picture, Pictures, holding
from cairn.formats.rows import (
    DamageError,
    Entry,
    Found,
    JsonCursor,
    broken,
    fields,
    files_in,
    numbers,
    states_of,
    text,
)
from cairn.ports import BlobStore

NAME = "omniact"
_WHEEL = 0.5  # of the screen, however far the script turns it
_KEYS = {
    "enter": "Enter", "return": "Enter", "tab": "Tab", "esc": "Escape", "escape": "Escape", "space": "Space",
    "backspace": "Backspace", "delete": "Delete", "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft",
    "right": "ArrowRight", "pageup": "PageUp", "pagedown": "PageDown", "home": "Home", "end": "End",
    "ctrl": "Control", "ctrlleft": "Control", "shift": "Shift", "alt": "Alt", "command": "Meta", "win": "Meta",
}  # fmt: skip


def read(path: Path, *, blobs: BlobStore) -> Iterator[Found]:
    """A state for each entry of the index; its template is where its image lies: `desktop/maps`, `web/asics`."""
    reader = _Reader(pictures=Pictures(blobs))
    for file in files_in(path, ".json"):
        yield from states_of(_entries(file), lambda entry, file=file: reader.states(entry, file))


def _entries(file: Path) -> Iterator[Entry]:
    cursor = JsonCursor.of(file)
    try:
        for name in cursor.members():
            line = cursor.line
            yield Entry(where=f"{file}:{line}", value={"id": name, "entry": cursor.value()})
    except json.JSONDecodeError as error:
        yield broken(file, error)


class _Reader:
    def __init__(self, *, pictures: Pictures) -> None:
        self._pictures = pictures
        self._tasks: dict[str, dict[str, int]] = {}  # of each template: the number of each image
        self._steps = Counter[str]()

    def states(self, entry: Entry, file: Path) -> Sequence[RecordedState]:
        row = fields(fields(entry.value)["entry"])
        image = text(row, "image")
        picture = self._pictures.file(file.parent / image)
        goal, script = _task((file.parent / text(row, "task")).read_text(encoding="utf-8", errors="replace"))
        action = script_action(script, picture)
        aim = aim_of(action)
        boxes = _boxes(file.parent / text(row, "box"), picture) if "box" in row else []
        template = f"{NAME}/{'/'.join(Path(image).parts[-3:-1])}"
        known = self._tasks.setdefault(template, {})
        index = known.setdefault(image, len(known))
        step = self._steps[image]
        self._steps[image] += 1
        target = holding(boxes, aim) if isinstance(aim, Point) else None
        return (
            RecordedState(
                task=recorded_task(template, index),
                episode=image,
                step=step,
                source=NAME,
                start=Recorded(goal=goal, observation=picture.shown(), expert=action, target=target),
            ),
        )


def _task(told: str) -> tuple[str, str]:
    before, mark, script = told.partition("Output Script:")
    goal = before.strip().removeprefix("Task:").strip()
    if not mark or not goal or not script.strip():
        raise DamageError("the task file holds no `Task:` with an `Output Script:`")
    return goal, script


def _boxes(path: Path, picture: Picture) -> list[Box]:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamageError(f"the box file {path} is not JSON: {error}") from error
    listed = cast("Sequence[object]", list(fields(found).values()) if isinstance(found, dict) else found)
    boxes: list[Box] = []
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and "top_left" in one and "bottom_right" in one:
            corners = fields(cast("object", one))
            left, top = numbers(corners, "top_left", counts=(2,))
            right, bottom = numbers(corners, "bottom_right", counts=(2,))
            boxes.append(picture.box(left, top, right, bottom))
    return boxes


# ── scripts ───────────────────────────────────────────────────────────────────

_Value = str | int | float | list[str]


def script_action(script: str, picture: Picture) -> Action:
    """The first action of a PyAutoGUI script; a move that a drag follows is where the drag begins."""
    try:
        calls = [_call(node.value) for node in ast.parse(script.strip()).body if isinstance(node, ast.Expr)]
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise DamageError(f"the script is not Python: {error}") from error
    match calls:
        case [("moveTo", [x, y, *_]), ("dragTo", [to_x, to_y, *_]), *_]:
            return Drag(_point(picture, x, y), _point(picture, to_x, to_y))
        case [(name, arguments), *_]:
            return _done(name, arguments, picture)
        case _:
            raise DamageError("the script calls nothing")


def _call(node: ast.expr) -> tuple[str, list[_Value]]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pyautogui"), attr=name), args=args, keywords=keywords):
            try:
                values = [ast.literal_eval(arg) for arg in (*args, *(keyword.value for keyword in keywords))]
            except ValueError as error:
                raise DamageError(f"pyautogui.{name} has an argument that is no plain value") from error
            return name, cast("list[_Value]", values)
        case _:
            raise DamageError(f"the script does more than to call pyautogui: {ast.unparse(node):.60}")


def _done(name: str, arguments: list[_Value], picture: Picture) -> Action:
    pointed = {"click": Click, "doubleClick": DoubleClick, "rightClick": RightClick, "moveTo": Hover}
    match name, arguments:
        case (("click" | "doubleClick" | "rightClick" | "moveTo"), [x, y, *_]):
            return pointed[name](_point(picture, x, y))
        case (("scroll" | "vscroll"), [int() | float() as turned, *_]) if turned:
            return Scroll(None, 0.0, -_WHEEL if turned > 0 else _WHEEL)
        case "hscroll", [int() | float() as turned, *_] if turned:
            return Scroll(None, _WHEEL if turned > 0 else -_WHEEL, 0.0)
        case (("write" | "typewrite"), [str() as words, *_]):
            return Type(words)
        case (("press" | "hotkey"), keys):
            return Key("+".join(_key(key) for key in keys))
        case _:
            raise DamageError(f"pyautogui.{name} with {arguments} is no action that is known here")


def _key(key: _Value) -> str:
    if not isinstance(key, str) or not key:
        raise DamageError(f"a key is a name, got {key!r}")
    return _KEYS.get(key.lower(), key)


def _point(picture: Picture, x: _Value, y: _Value) -> Point:
    if not isinstance(x, int | float) or not isinstance(y, int | float):
        raise DamageError(f"a place is two numbers, got {x!r}, {y!r}")
    return picture.point(x, y)
