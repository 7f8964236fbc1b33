"""What a run shows while it works: one bar with success, speed and time left, and a line for each event."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cairn.ports import Event


class ProgressSink:
    """An event sink for people. Use as a context manager; `close` leaves the last state on the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description:14}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar: TaskID | None = None
        self._note = ""
        self._progress.start()

    def emit(self, event: Event) -> None:
        match event.kind:
            case "phase":
                self._begin(str(event.fields["name"]), str(event.fields["detail"]))
            case "round":
                self._note = (
                    f"success {_percent(event, 'success')}  {_number(event, 'turns_per_second'):.0f} turns/s"
                    f"  learning from {_number(event, 'informative_groups'):.0f}/{_number(event, 'groups'):.0f} groups"
                )
            case "update":
                note = self._note or f"loss {_number(event, 'loss'):.3f}"
                self._advance(100 * _number(event, "share"), note)
            case "progress":
                self._advance(100 * _number(event, "share"), str(event.fields.get("note", "")))
            case "evaluation":
                kind = "greedy" if event.fields["greedy"] else "sampled"
                self._console.print(
                    f"  {event.fields['split']}, {kind}: [bold]{_percent(event, 'mean')}[/] "
                    f"[{_percent(event, 'low')}, {_percent(event, 'high')}] of {event.fields['episodes']} episodes"
                    + (f", {event.fields['lost']} lost outside" if event.fields["lost"] else "")
                )
            case "notice":
                self._console.print(f"  [yellow]{event.fields['text']}[/]")
            case _:
                pass

    def close(self) -> None:
        """Stop drawing."""
        self._progress.stop()

    def _begin(self, name: str, detail: str) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        self._note = ""
        self._console.print(f"[bold]{name}[/]  [dim]{detail}[/]")
        self._bar = self._progress.add_task(name, total=100.0, note="")

    def _advance(self, percent: float, note: str) -> None:
        if self._bar is not None:
            self._progress.update(self._bar, completed=percent, note=note)


def _number(event: Event, key: str) -> float:
    value = event.fields[key]
    return float(value) if isinstance(value, int | float) else 0.0


def _percent(event: Event, key: str) -> str:
    return f"{100 * _number(event, key):.1f} %"
