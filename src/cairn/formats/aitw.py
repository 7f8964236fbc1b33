"""Android in the Wild (arXiv:2307.10088), in the decoded JSON that SeeClick (arXiv:2401.10935) published.

An object with a list of episodes for each subset (`general`, `install`, `googleapps`, `single`, `webshopping`); an
episode is a list of steps with `ep_id`, `goal`, `img_filename` (without its ending), `action_type_id`,
`action_type_text`, `touch` and `lift` (x, y as fractions), `type_text`, and `annot_position`, a flat list of boxes
(top, left, height, width as fractions). `scroll down` goes towards what lies below: the finger moves up.

A click whose place lies in an annotated box has the smallest such box as its target.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn.data.action import Action, Back, Click, Finish, FinishStatus, Home, Key, Point, Scroll, Type
from cairn.data.history import Deed
from cairn.data.observation import Box
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.android_control import SCROLLS
from cairn.formats.files import picture_path
from cairn.formats.json_text import JsonCursor, JsonError, broken
from cairn.formats.places import Pictures, fraction, holding
from cairn.formats.rows import (
    DamageError,
    Entry,
    Found,
    Row,
    as_number,
    fields,
    files_in,
    items,
    number,
    numbers,
    states_of,
    text,
)
from cairn.ports import BlobStore

NAME = "aitw"
_TYPED, _TOUCHED = 3, 4
_PLAIN: dict[int, Action] = {
    5: Back(),
    6: Home(),
    7: Key("Enter"),
    10: Finish(),
    11: Finish(FinishStatus.INFEASIBLE),
}
_STILL = 0.04  # a finger that moves less has touched one place: the data set's own rule


def read(path: Path, *, blobs: BlobStore) -> Iterator[Found]:
    """A state for each step of each episode; its template is the subset."""
    pictures = Pictures(blobs)
    counts: dict[str, int] = {}
    for file in files_in(path, ".json"):
        for subset, entry in _episodes(file):
            index = counts.get(subset, 0)
            counts[subset] = index + 1
            yield from states_of([entry], lambda e, f=file, s=subset, n=index: _episode(e, f, pictures, s, n))


def _episodes(file: Path) -> Iterator[tuple[str, Entry]]:
    try:
        cursor = JsonCursor.of(file)
        for subset in cursor.members():
            for entry in cursor.entries(file):
                yield subset, entry
    except JsonError as error:
        yield "", broken(file, error)


def _episode(entry: Entry, file: Path, pictures: Pictures, subset: str, index: int) -> Sequence[RecordedState]:
    if not isinstance(entry.value, list):
        raise DamageError("an episode is a list of steps")
    steps = items({"steps": entry.value}, "steps")
    states: list[RecordedState] = []
    history: list[Deed] = []
    for step, value in enumerate(steps):
        try:
            states.append(_state(fields(value), file, pictures, task=(subset, index), history=history, step=step))
        except DamageError as error:
            raise DamageError(f"step {step}: {error}") from error
        start = states[-1].start
        history.append(Deed(observation=start.observation, action=start.expert))
    return states


def _state(
    row: Row, file: Path, pictures: Pictures, *, task: tuple[str, int], history: Sequence[Deed], step: int
) -> RecordedState:
    picture = pictures.file(picture_path(file, f"{text(row, 'img_filename')}.png"))
    action, target = _action(row)
    subset, index = task
    return RecordedState(
        task=recorded_task(f"{NAME}/{subset}", index),
        episode=text(row, "ep_id"),
        step=step,
        source=NAME,
        start=Recorded(
            goal=text(row, "goal"), history=tuple(history), observation=picture.shown(), expert=action, target=target
        ),
    )


def _action(row: Row) -> tuple[Action, Box | None]:
    kind = number(row, "action_type_id")
    if kind == _TYPED:
        return Type(text(row, "type_text")), None
    if kind == _TOUCHED:
        return _touched(row)
    if kind not in _PLAIN:
        raise DamageError(f"unknown action_type_id {kind:g}")
    return _PLAIN[int(kind)], None


def _touched(row: Row) -> tuple[Action, Box | None]:
    told = text(row, "action_type_text", default="")
    verb, _, direction = told.partition(" ")
    if verb == "scroll":
        if direction not in SCROLLS:
            raise DamageError(f"unknown action_type_text {told!r}")
        return Scroll(None, *SCROLLS[direction]), None
    (x, y), (end_x, end_y) = (numbers(row, name, counts=(2,)) for name in ("touch", "lift"))
    across, down = end_x - x, end_y - y
    if verb == "click" or (across**2 + down**2) ** 0.5 <= _STILL:
        place = fraction((x + end_x) / 2, (y + end_y) / 2)
        return Click(place), _annotated(row, place)
    # the page follows the finger, and shows what lies on the other side
    way = ("up" if down > 0 else "down") if abs(down) >= abs(across) else ("left" if across > 0 else "right")
    return Scroll(None, *SCROLLS[way]), None


def _annotated(row: Row, place: Point) -> Box | None:
    if "annot_position" not in row:
        return None
    flat = [as_number(value, "annot_position") for value in items(row, "annot_position")]
    if len(flat) % 4:
        raise DamageError(f"annot_position holds {len(flat)} numbers, not four for each box")
    boxes = [Box(top=flat[i], left=flat[i + 1], height=flat[i + 2], width=flat[i + 3]) for i in range(0, len(flat), 4)]
    return holding(boxes, place)
