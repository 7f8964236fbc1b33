"""OmniACT (arXiv:2402.17553): one screenshot of a desktop or a web page, and a PyAutoGUI script that does the task.

An index such as `train.json` names for each entry, by paths from its own folder, a `task` (a text file with `Task: …`
and `Output Script:` followed by the script), an `image` and a `box` file with the annotated boxes: an object or a
list of objects with `top_left` and `bottom_right`. The layout of the box files is from memory of the release: where
one differs, the state has no target box. Coordinates are pixels of the image.

Only the first action of a script is recorded: what the screen shows after it is not known.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from cairn.data.action import Point
from cairn.data.matching import aim_of
from cairn.data.observation import Box
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.files import named_file, text_content
from cairn.formats.json_text import JsonCursor, JsonError, broken, parsed
from cairn.formats.places import Picture, Pictures, holding
from cairn.formats.pyautogui_script import script_action
from cairn.formats.rows import DamageError, Entry, Found, fields, files_in, numbers, states_of, text
from cairn.ports import BlobStore

NAME = "omniact"


def read(path: Path, *, blobs: BlobStore) -> Iterator[Found]:
    """A state for each entry of the index; its template is where its image lies: `desktop/maps`, `web/asics`."""
    reader = _Reader(pictures=Pictures(blobs))
    for file in files_in(path, ".json"):
        yield from states_of(_entries(file), lambda entry, file=file: reader.states(entry, file))


def _entries(file: Path) -> Iterator[Entry]:
    try:
        yield from (entry for _, entry in JsonCursor.of(file).named(file))
    except JsonError as error:
        yield broken(file, error)


class _Reader:
    def __init__(self, *, pictures: Pictures) -> None:
        self._pictures = pictures
        self._tasks: dict[str, dict[str, int]] = {}  # of each template: the number of each image
        self._steps = Counter[str]()

    def states(self, entry: Entry, file: Path) -> Sequence[RecordedState]:
        row = fields(entry.value)
        image = text(row, "image")
        picture = self._pictures.file(named_file(file, image, file.parent))
        goal, script = _task(text_content(named_file(file, text(row, "task"), file.parent), "task file"))
        action = script_action(script, picture)
        aim = aim_of(action)
        boxes = _boxes(named_file(file, text(row, "box"), file.parent), picture) if "box" in row else []
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
        found = parsed(text_content(path, "box file"))
    except JsonError as error:
        raise DamageError(f"the box file {path} {error}") from error
    listed = cast("Sequence[object]", list(fields(found).values()) if isinstance(found, dict) else found)
    boxes: list[Box] = []
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and "top_left" in one and "bottom_right" in one:
            corners = fields(cast("object", one))
            left, top = numbers(corners, "top_left", counts=(2,))
            right, bottom = numbers(corners, "bottom_right", counts=(2,))
            boxes.append(picture.box(left, top, right, bottom))
    return boxes
