"""Conversations about pictures, as LLaVA and many that followed it store them: JSON or JSONL.

A row has `image` (a name, or a list of names; `images` too) and `conversations`, a list of `from` (`human`, `gpt`)
and `value`; or `messages` with `role` and `content`. `<image>` stands for the next picture, and the newest one is the
screen. Every answer that says one action is a state, with those before it as its history.

What an answer looks like is each data set's own affair. Read are, in this order:

* a JSON object, alone or in `<answer>` or `<tool_call>`, with `action` or `action_type`, `coordinate`, `point` or `x`
  and `y`, `text`, `direction`, `key`, `time`; `arguments` may hold them all;
* one of Cairn's own lines, such as `click (500, 250)` or `type "ada"`;
* four numbers in brackets, a box to click in; or two, a point to click at.

An answer that says more than one action, or more than one place, is damage.

`grid` says what numbers count: pixels of the picture, thousandths, or fractions of it; by itself, those not above 1
are fractions and all others thousandths.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from cairn.codecs.text_grammar import THOUSANDTHS, parse_action
from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
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
    Type,
    Wait,
)
from cairn.data.history import Deed
from cairn.data.observation import Box
from cairn.data.recorded import Grid, RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.android_control import scroll
from cairn.formats.files import picture_path
from cairn.formats.json_text import JsonError, decoded, json_rows, parsed
from cairn.formats.places import Picture, Pictures, edges, fraction
from cairn.formats.rows import (
    DamageError,
    Entry,
    Found,
    Row,
    fields,
    files_in,
    items,
    number,
    numbers,
    states_of,
    text,
)
from cairn.ports import BlobStore

NAME = "llava"
_MARK = "<image>"
_HUMAN, _MODEL = frozenset({"human", "user"}), frozenset({"gpt", "assistant", "model"})
_NUMBER = r"\s*(-?\d+(?:\.\d+)?)\s*"
_FOUR = re.compile(rf"[\[(]{{1,2}}{_NUMBER},{_NUMBER}\)?,?\(?{_NUMBER},{_NUMBER}[\])]{{1,2}}")
_TWO = re.compile(rf"[\[(]{_NUMBER},{_NUMBER}[\])]")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def read(path: Path, *, blobs: BlobStore, grid: Grid = Grid.AUTO) -> Iterator[Found]:
    """The states of each conversation, which is a task of its own."""
    pictures, count = Pictures(blobs), 0
    for file in files_in(path, ".jsonl", ".json"):
        for entry in json_rows(file):
            yield from states_of([entry], lambda e, f=file, n=count: _conversation(e, f, pictures, grid, n))
            count += 1


def _conversation(entry: Entry, file: Path, pictures: Pictures, grid: Grid, index: int) -> Sequence[RecordedState]:
    row = fields(entry.value)
    names = _names(row)
    states: list[RecordedState] = []
    history: list[Deed] = []
    picture: Picture | None = None
    asked = ""
    for speaker, said in _said(row):
        if speaker in _HUMAN:
            for _ in range(said.count(_MARK)):
                if not names:
                    raise DamageError("there are more <image> than pictures")
                picture = pictures.file(picture_path(file, names.pop(0)))
            asked = said.replace(_MARK, "").strip()
        elif speaker in _MODEL:
            if picture is None:
                raise DamageError("an answer comes before the first <image>")
            action, target = answered(said, picture, grid)
            start = Recorded(
                goal=asked, history=tuple(history), observation=picture.shown(), expert=action, target=target
            )
            states.append(
                RecordedState(
                    task=recorded_task(NAME, index),
                    episode=f"{text(row, 'id', default='')}#{index}",
                    step=len(states),
                    source=NAME,
                    start=start,
                )
            )
            history.append(Deed(observation=start.observation, action=action))
    if not states:
        raise DamageError("the conversation holds no answer")
    return states


def _names(row: Row) -> list[str]:
    found = row.get("image", row.get("images"))
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamageError("image must be the name of a picture, or a list of names")
    return list(cast("list[str]", names))


def _said(row: Row) -> Iterator[tuple[str, str]]:
    if "conversations" in row:
        for one in items(row, "conversations"):
            yield text(fields(one), "from"), text(fields(one), "value")
    else:
        for one in items(row, "messages"):
            yield text(fields(one), "role"), text(fields(one), "content")


# ── answers ───────────────────────────────────────────────────────────────────


def answered(said: str, picture: Picture, grid: Grid) -> tuple[Action, Box | None]:
    """The action that an answer says, and the box where it names one; raises `DamageError` where it says none."""
    plain = _THOUGHT.sub("", said)
    found = _json(plain)
    if found is not None:
        return _action(found, picture, grid)
    line = _line(plain)
    if line is not None:
        return line, None
    if "{" in plain:
        raise DamageError(f"the answer holds braces, and no action in JSON: {plain.strip()!r:.80}")
    if boxes := _places(_FOUR, plain):
        target = _edges(*boxes, picture=picture, grid=grid)
        return Click(target.center), target
    if points := _places(_TWO, plain):
        return Click(_point(points[0], points[1], picture, grid)), None
    raise DamageError(f"the answer says no action that is known here: {plain.strip()!r:.80}")


def _json(plain: str) -> Row | None:
    """The one JSON object of an answer; None where it holds none."""
    found: list[object] = []
    at, whole = plain.find("{"), True
    while at >= 0 and whole:
        try:
            value, end = decoded(plain, at)
        except JsonError:
            whole = False
        else:
            found.append(value)
            at = plain.find("{", end)
    if not found:
        return None
    if len(found) > 1 or not whole:
        raise DamageError(f"the answer says more than one action, or braces beside it: {plain.strip()!r:.80}")
    return _arguments(fields(found[0]))


def _arguments(row: Row) -> Row:
    """Of a tool's call what it is called with, an object or, as OpenAI writes it, JSON in a string."""
    inner = row.get("arguments")
    if isinstance(inner, str):
        try:
            inner = parsed(inner)
        except JsonError as error:
            raise DamageError(f"arguments: {error}") from error
    return row if inner is None else fields(inner)


def _line(plain: str) -> Action | None:
    """Cairn's own line, alone or among lines that say no action; None where there is none."""
    whole = parse_action(plain.strip())
    if not isinstance(whole, Invalid):
        return whole
    told = [action for line in plain.splitlines() if not isinstance(action := parse_action(line), Invalid)]
    if len(told) > 1:
        raise DamageError(f"the answer says more than one action: {plain.strip()!r:.80}")
    return told[0] if told else None


def _places(form: re.Pattern[str], plain: str) -> tuple[float, ...]:
    """The numbers of the one place that is said in this form, however often; none where there is none."""
    found = {tuple(map(float, one)) for one in form.findall(plain)}
    if len(found) > 1:
        raise DamageError(f"the answer names more than one place: {plain.strip()!r:.80}")
    return found.pop() if found else ()


def _action(row: Row, picture: Picture, grid: Grid) -> tuple[Action, Box | None]:
    kind = text(row, "action" if "action" in row else "action_type").strip().lower()
    if kind in _POINTED:
        place, target = _place(row, picture, grid)
        return _POINTED[kind](place), target
    return Wait(_seconds(row)) if kind == "wait" else _unpointed(kind, row), None


def _unpointed(kind: str, row: Row) -> Action:
    if kind in _PLAIN:
        return _PLAIN[kind]
    match kind:
        case "type" | "input_text" | "write":
            return Type(text(row, "text"))
        case "scroll" | "swipe":
            return Scroll(None, *scroll(text(row, "direction")))
        case "key" | "press" | "hotkey":
            return Key(text(row, "key" if "key" in row else "text"))
        case "open" | "open_app":
            return Open(text(row, "text" if "text" in row else "app"))
        case "answer":
            return Answer(text(row, "text"))
        case _:
            raise DamageError(f"unknown action {kind!r}")


def _seconds(row: Row) -> float:
    name = next((name for name in ("time", "seconds") if row.get(name) is not None), None)
    seconds = 1.0 if name is None else number(row, name)
    if not seconds > 0:
        raise DamageError(f"{name} must be above 0, got {seconds:g}")
    return seconds


_POINTED: Mapping[str, type[Click | DoubleClick | RightClick | LongPress | Hover]] = {
    "click": Click, "tap": Click, "left_click": Click, "double_click": DoubleClick, "right_click": RightClick,
    "long_press": LongPress, "hover": Hover, "mouse_move": Hover,
}  # fmt: skip
_PLAIN: Mapping[str, Action] = {
    "back": Back(), "press_back": Back(), "home": Home(), "press_home": Home(), "enter": Key("Enter"),
    "finish": Finish(), "complete": Finish(), "terminate": Finish(),
    "impossible": Finish(FinishStatus.INFEASIBLE),
}  # fmt: skip


def _place(row: Row, picture: Picture, grid: Grid) -> tuple[Point, Box | None]:
    if "x" in row and "y" in row:
        return _point(number(row, "x"), number(row, "y"), picture, grid), None
    name = next((name for name in ("coordinate", "point", "bbox", "bbox_2d", "box") if name in row), "coordinate")
    where = numbers(row, name, counts=(2, 4))
    if len(where) == 4:
        target = _edges(*where, picture=picture, grid=grid)
        return target.center, target
    return _point(where[0], where[1], picture, grid), None


def _point(x: float, y: float, picture: Picture, grid: Grid) -> Point:
    across, down = _units(grid, picture, largest=max(x, y))
    return fraction(x / across, y / down)


def _edges(left: float, top: float, right: float, bottom: float, *, picture: Picture, grid: Grid) -> Box:
    across, down = _units(grid, picture, largest=max(left, top, right, bottom))
    return edges(left / across, top / down, right / across, bottom / down)


def _units(grid: Grid, picture: Picture, *, largest: float) -> tuple[float, float]:
    match grid:
        case Grid.PIXELS:
            return picture.width, picture.height
        case Grid.THOUSANDTHS:
            return THOUSANDTHS, THOUSANDTHS
        case Grid.FRACTION:
            return 1, 1
        case Grid.AUTO:
            return (1, 1) if largest <= 1 else (THOUSANDTHS, THOUSANDTHS)
