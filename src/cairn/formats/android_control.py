"""AndroidControl (arXiv:2406.03679): episodes on phones, with an instruction for the whole and one for each step.

An episode has `episode_id`, `goal`, `screenshots`, `screenshot_widths`, `screenshot_heights`, `actions` and
`step_instructions`; there is one screenshot more than there are actions. It is read from the published TFRecord files
(compressed or not), where screenshots are PNG bytes and actions are JSON, and from JSON or JSONL with the same
fields, where screenshots are names of files. Nobody publishes that JSON: where pictures lie, and whether an action is
an object or JSON in a string, differs from copy to copy, and both are read; points are pixels of the screenshot.

The accessibility trees are passed over, so that a click has a point and no box. `type`, which clicks, types and
confirms at once, is read as typing at its point; so is `input_text`, without a point.
"""

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
from cairn.data.history import Deed
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.files import picture_path
from cairn.formats.json_text import JsonError, json_rows, parsed
from cairn.formats.places import Picture, Pictures
from cairn.formats.rows import (
    DamageError,
    Entry,
    Found,
    Row,
    fields,
    files_in,
    items,
    number,
    states_of,
    text,
)
from cairn.formats.tfrecord import examples
from cairn.ports import BlobStore

NAME = "androidcontrol"
SCROLLS = {"up": (0.0, -0.5), "down": (0.0, 0.5), "left": (-0.5, 0.0), "right": (0.5, 0.0)}
"""Towards what lies there, by half a screen."""


def read(path: Path, *, blobs: BlobStore) -> Iterator[Found]:
    """A state for each action of each episode."""
    pictures, count = Pictures(blobs), 0
    for file in _files(path):
        entries = json_rows(file) if file.suffix in {".json", ".jsonl"} else examples(file)
        for entry in entries:
            yield from states_of([entry], lambda e, file=file, n=count: _episode(e, file, pictures, number_=n))
            count += 1


def _files(path: Path) -> list[Path]:
    if path.is_dir() and (records := sorted(p for p in path.iterdir() if "-of-" in p.name or p.suffix == ".tfrecord")):
        return records
    return files_in(path, ".json", ".jsonl")


def _episode(entry: Entry, file: Path, pictures: Pictures, *, number_: int) -> Sequence[RecordedState]:
    row = fields(entry.value)
    goal, episode = text(row, "goal"), text(row, "episode_id")
    shots, actions = items(row, "screenshots"), items(row, "actions")
    told = items(row, "step_instructions") if "step_instructions" in row else [""] * len(actions)
    if len(shots) < len(actions) or len(told) != len(actions):
        raise DamageError(
            f"episode {episode} has {len(actions)} actions, {len(shots)} screenshots and {len(told)} instructions"
        )
    states: list[RecordedState] = []
    history: list[Deed] = []
    for step, (shot, action, instruction) in enumerate(zip(shots, actions, told, strict=False)):
        picture = _picture(shot, file, pictures)
        try:
            done = _action(action, picture)
        except DamageError as error:
            raise DamageError(f"episode {episode}, step {step}: {error}") from error
        seen = picture.shown()
        states.append(
            RecordedState(
                task=recorded_task(NAME, number_),
                episode=episode,
                step=step,
                source=NAME,
                start=Recorded(
                    goal=goal, history=tuple(history), observation=seen, expert=done, sub_goal=str(instruction)
                ),
            )
        )
        history.append(Deed(observation=seen, action=done))
    return states


def _picture(shot: object, file: Path, pictures: Pictures) -> Picture:
    if isinstance(shot, bytes):
        return pictures.data(shot)
    if isinstance(shot, str):
        return pictures.file(picture_path(file, shot))
    raise DamageError(f"a screenshot is the name of a file, got {shot!r:.60}")


def _action(value: object, picture: Picture) -> Action:
    if isinstance(value, str | bytes):
        try:
            value = parsed(value)
        except JsonError as error:
            raise DamageError(f"an action {error}") from error
    return action_of(fields(value), picture)


def action_of(row: Row, picture: Picture) -> Action:
    """An action by its `action_type`; points are pixels of the picture."""
    kind = text(row, "action_type")
    match kind:
        case "click":
            return Click(_point(row, picture))
        case "long_press":
            return LongPress(_point(row, picture))
        case "type" | "input_text":
            return Type(text(row, "text"), _point(row, picture) if kind == "type" else None)
        case "scroll":
            return Scroll(None, *scroll(text(row, "direction")))
        case "open_app":
            return Open(text(row, "app_name"))
        case _:
            return _plain(kind, row)


def _point(row: Row, picture: Picture) -> Point:
    return picture.point(number(row, "x"), number(row, "y"))


def _plain(kind: str, row: Row) -> Action:
    match kind:
        case "navigate_home":
            return Home()
        case "navigate_back":
            return Back()
        case "wait":
            return Wait(1.0)
        case "keyboard_enter":
            return Key("Enter")
        case "status":
            reached = text(row, "goal_status", default="successful") in {"successful", "complete"}
            return Finish(FinishStatus.DONE if reached else FinishStatus.INFEASIBLE)
        case _:
            raise DamageError(f"unknown action_type {kind!r}")


def scroll(direction: str) -> tuple[float, float]:
    """Of a direction's name."""
    found = SCROLLS.get(direction.strip().lower())
    if found is None:
        raise DamageError(f"unknown direction {direction!r}: there are {', '.join(SCROLLS)}")
    return found
