"""Where events go: a JSONL file, TensorBoard, or several sinks at once."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeAlias, TypedDict, cast

from cairn.ports import Event, EventSink
from cairn.store.disk import writing

Value: TypeAlias = str | int | float | bool | None
Now = Callable[[], datetime]


class _Line(TypedDict):
    time: str
    kind: str
    fields: dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An event with the time at which it was written."""

    time: datetime
    event: Event


def wall_clock() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


class JsonlSink:
    """Appends one JSON object a line, each on the file before `emit` returns."""

    def __init__(self, path: Path, *, now: Now = wall_clock) -> None:
        """Open for appending; a line that a killed process left unfinished is closed off first."""
        self._path = path
        self._now = now
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("a", encoding="utf-8")
            if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
                self._file.write("\n")

    def emit(self, event: Event) -> None:
        fields = {name: _finite(value) for name, value in event.fields.items()}
        line = _Line(time=self._now().isoformat(), kind=event.kind, fields=fields)
        with writing(self._path):
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_events(path: Path) -> Iterator[Logged]:
    """Every whole line; what a killed process left unfinished is passed over."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = cast("_Line", json.loads(text))
        except json.JSONDecodeError:
            continue
        yield Logged(time=datetime.fromisoformat(line["time"]), event=Event(kind=line["kind"], fields=line["fields"]))


class TensorBoardSink:
    """Writes an event's numbers as scalars named `kind/field`, at the step that its field `step_field` gives.

    Events without that field are left out. An event with a text field `phase` is named `phase/field`.
    """

    def __init__(self, folder: Path, *, step_field: str = "number", now: Now = wall_clock) -> None:
        from tensorboard.summary import DirectoryOutput, Writer

        self._step_field = step_field
        self._now = now
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = Writer(DirectoryOutput(str(folder)))

    def emit(self, event: Event) -> None:
        step = event.fields.get(self._step_field)
        if not isinstance(step, int):
            return
        phase = event.fields.get("phase")
        prefix = phase if isinstance(phase, str) else event.kind
        time = self._now().timestamp()
        for name, value in event.fields.items():
            if isinstance(value, int | float) and name != self._step_field:
                self._writer.add_scalar(f"{prefix}/{name}", float(value), step, wall_time=time)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class FanOut:
    """Hands every event to several sinks, in order."""

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = tuple(sinks)

    def emit(self, event: Event) -> None:
        for sink in self._sinks:
            sink.emit(event)


def _finite(value: Value) -> Value:
    """JSON knows no infinity and no NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
