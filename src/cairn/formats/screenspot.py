"""ScreenSpot, ScreenSpot-v2 and ScreenSpot-Pro: one instruction, one screenshot, the box to click in.

The fields are those of the published annotation files: a JSON array of objects with `img_filename`, `bbox`,
`instruction`, and `data_type` and `data_source`, or in Pro `ui_type`, `application`, `platform` and `group`. `bbox`
is in pixels: left, top, width and height in ScreenSpot and v2, left, top, right and bottom in Pro. Copies of
ScreenSpot on the Hugging Face hub name the picture `file_name` and give left, top, right and bottom as fractions: a
`bbox` without a number above 1 is read so.

Pictures lie in the folder that is given, beside the annotations' folder or beside the file, in `images` or in none.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn.data.action import Click
from cairn.data.observation import Box
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded
from cairn.formats.files import picture_path
from cairn.formats.json_text import json_rows
from cairn.formats.places import Picture, Pictures, edges
from cairn.formats.rows import DamageError, Entry, Found, Row, fields, files_in, numbers, states_of, text
from cairn.ports import BlobStore


def read(path: Path, *, blobs: BlobStore, name: str = "screenspot") -> Iterator[Found]:
    """A state for each instruction; those of one picture are one task. `name` ends in -pro where boxes are by edges."""
    reader = _Reader(pictures=Pictures(blobs), name=name)
    for file in files_in(path, ".json", ".jsonl"):
        yield from states_of(json_rows(file), lambda entry, file=file: reader.states(entry, file))


class _Reader:
    def __init__(self, *, pictures: Pictures, name: str) -> None:
        self._pictures = pictures
        self._name = name
        self._tasks: dict[tuple[str, str], int] = {}  # picture of a template -> its number
        self._counts = Counter[str]()  # tasks of each template
        self._steps = Counter[tuple[str, str]]()

    def states(self, entry: Entry, file: Path) -> Sequence[RecordedState]:
        row = fields(entry.value)
        shown = text(row, "img_filename" if "img_filename" in row else "file_name")
        picture = self._pictures.file(picture_path(file, shown))
        box = self._box(row, picture)
        goal = text(row, "instruction").strip()
        if not goal:
            raise DamageError("instruction is empty")
        template = f"{self._name}/{_group(row, file)}"
        key = (template, shown)
        if key not in self._tasks:
            self._tasks[key] = self._counts[template]
            self._counts[template] += 1
        step = self._steps[key]
        self._steps[key] += 1
        return (
            RecordedState(
                task=recorded_task(template, self._tasks[key]),
                episode=shown,
                step=step,
                source=self._name,
                start=Recorded(goal=goal, observation=picture.shown(), expert=Click(box.center), target=box),
            ),
        )

    def _box(self, row: Row, picture: Picture) -> Box:
        one, two, three, four = numbers(row, "bbox", counts=(4,))
        if max(one, two, three, four) <= 1:
            return edges(one, two, three, four)
        if self._name.endswith("-pro"):
            return picture.box(one, two, three, four)
        if three < 0 or four < 0:
            raise DamageError(f"bbox has a negative width or height: {three} x {four}")
        return picture.box(one, two, one + three, two + four)


def _group(row: Row, file: Path) -> str:
    """As the benchmarks are broken down: by platform and by text or icon; in Pro by field and the same."""
    kind = text(row, "ui_type" if "ui_type" in row else "data_type", default="any")
    if "group" in row:
        return f"{text(row, 'group').lower()}-{kind}"
    platform = next((p for p in ("mobile", "desktop", "web") if p in file.name), None)
    return f"{platform or text(row, 'data_source', default='any')}-{kind}"
