"""GUI-R1-3K (arXiv:2504.10458): single steps on five platforms, one action space.

Parquet, or JSON or JSONL with the same fields: `image` (bytes, or the name of a file), `instruction`, `history`
(text, or `None`), `gt_action`, `gt_bbox` (a point or a box by its edges), `gt_input_text`, and `group`, `ui_type` or
`task_type` where they are there. Numbers of `gt_bbox` that are not above 1 are fractions, others pixels; for actions
without a place they are negative, and passed over. Which of `group`, `ui_type` and `task_type` exist differs between
the published files: the first that does names the template.

The history is text without screenshots, so it becomes part of the goal.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn.data.action import (
    Action,
    Back,
    Click,
    Finish,
    FinishStatus,
    Home,
    Key,
    LongPress,
    Open,
    Point,
    Scroll,
    Type,
    Wait,
)
from cairn.data.observation import Box
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.android_control import scroll
from cairn.formats.files import picture_path
from cairn.formats.json_text import json_rows
from cairn.formats.places import Picture, Pictures, edges, fraction
from cairn.formats.rows import (
    DamageError,
    Entry,
    Found,
    Row,
    fields,
    files_in,
    numbers,
    parquet_rows,
    states_of,
    text,
)
from cairn.ports import BlobStore

NAME = "gui-r1"
_NO_TEXT = "no input text"  # stands in gt_input_text of every action that has none
_NOTHING = frozenset({"", "none", "null", _NO_TEXT})


def read(path: Path, *, blobs: BlobStore) -> Iterator[Found]:
    """A state for each row, and a task of its own."""
    reader = _Reader(pictures=Pictures(blobs))
    for file in files_in(path, ".parquet", ".json", ".jsonl"):
        entries = parquet_rows(file) if file.suffix == ".parquet" else json_rows(file)
        yield from states_of(entries, lambda entry, file=file: reader.states(entry, file))


class _Reader:
    def __init__(self, *, pictures: Pictures) -> None:
        self._pictures = pictures
        self._counts = Counter[str]()

    def states(self, entry: Entry, file: Path) -> Sequence[RecordedState]:
        row = fields(entry.value)
        picture = self._picture(row, file)
        point, target = _place(row, picture)
        action = _action(row, point)
        template = f"{NAME}/{_group(row)}"
        number = self._counts[template]
        state = RecordedState(
            task=recorded_task(template, number),
            episode=f"{template}/{number}",
            step=0,
            source=NAME,
            start=Recorded(
                goal=_goal(row),
                observation=picture.shown(),
                expert=action,
                target=target if isinstance(action, Click | LongPress) else None,
            ),
        )
        self._counts[template] += 1
        return (state,)

    def _picture(self, row: Row, file: Path) -> Picture:
        image = row.get("image")
        if isinstance(image, dict):
            image = fields(image).get("bytes") or fields(image).get("path")
        if isinstance(image, bytes):
            return self._pictures.data(image)
        if isinstance(image, str):
            return self._pictures.file(picture_path(file, image))
        raise DamageError("image holds neither bytes nor the name of a file")


def _group(row: Row) -> str:
    name = next((name for name in ("group", "ui_type", "task_type") if isinstance(row.get(name), str)), None)
    return "any" if name is None else text(row, name).strip().lower().replace("/", "-") or "any"


def _goal(row: Row) -> str:
    goal = text(row, "instruction").strip()
    if not goal:
        raise DamageError("instruction is empty")
    history = text(row, "history", default="") if row.get("history") is not None else ""
    return goal if history.strip().lower() in _NOTHING else f"{goal}\nDone before: {history.strip()}"


def _place(row: Row, picture: Picture) -> tuple[Point | None, Box | None]:
    if row.get("gt_bbox") is None:
        return None, None
    where = numbers(row, "gt_bbox", counts=(0, 2, 4))
    if not where or min(where) < 0:
        return None, None
    if len(where) == 2:
        x, y = where
        return (fraction(x, y) if max(where) <= 1 else picture.point(x, y)), None
    box = edges(*where) if max(where) <= 1 else picture.box(*where)
    return box.center, box


def _action(row: Row, place: Point | None) -> Action:
    kind = text(row, "gt_action").strip().lower()
    match kind:
        case "click" | "tap" | "close/delete" | "close":
            return Click(_needed(kind, place))
        case "long_press":
            return LongPress(_needed(kind, place))
        case "type" | "select" | "input_text":
            return Type(_words(kind, row))
        case "scroll":
            return Scroll(place, *scroll(text(row, "gt_input_text")))
        case "open_app":
            return Open(_words(kind, row))
        case _:
            return _plain(kind)


def _words(kind: str, row: Row) -> str:
    said = text(row, "gt_input_text")
    if said.strip().lower() in {"", _NO_TEXT}:
        raise DamageError(f"gt_action {kind} needs a text, and gt_input_text has none")
    return said


def _plain(kind: str) -> Action:
    found = _PLAIN.get(kind)
    if found is None:
        raise DamageError(f"unknown gt_action {kind!r}")
    return found


_PLAIN: dict[str, Action] = {
    "press_back": Back(),
    "press_home": Home(),
    "enter": Key("Enter"),
    "press_enter": Key("Enter"),
    "wait": Wait(1.0),
    "complete": Finish(),
    "impossible": Finish(FinishStatus.INFEASIBLE),
}


def _needed(kind: str, place: Point | None) -> Point:
    if place is None:
        raise DamageError(f"gt_action {kind} needs a place, and gt_bbox has none")
    return place
