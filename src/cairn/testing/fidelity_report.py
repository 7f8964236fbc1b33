"""What a check of saved states found, as data, as tables and as JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cairn.data.ids import TaskId, TemplateId


class Fate(StrEnum):
    """What became of a state that was to be saved and opened again."""

    KEPT = "kept"  # it was opened, and went on exactly as the session that it was saved from
    REFUSED = "refused"  # it could not be opened, or what was opened was found to be another state: nothing is learned
    ASTRAY = "astray"  # it was opened without complaint, and went on otherwise: a wrong state that nobody noticed
    FAILED = "failed"  # what was opened died, or its original: an infrastructure error, not a wrong state
    UNSAVED = "unsaved"  # it could not be saved
    DISTURBED = "disturbed"  # the session that it was saved from no longer succeeded
    UNFIT = "unfit"  # the expert does not succeed even where nothing is saved: says nothing of snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One state: saved, opened, compared, played on to the end."""

    template: TemplateId
    task: TaskId
    step: int  # actions before it was saved
    fate: Fate
    reason: str = ""  # empty where it was kept
    save_s: float | None = None  # None where that was never done
    open_s: float | None = None  # until it was opened and verified, by whatever the environment verifies


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityReport:
    """All that one check of one way to keep states found."""

    environment: str
    store: str
    cycles: tuple[Cycle, ...]
    seconds: float

    @property
    def judged(self) -> tuple[Cycle, ...]:
        """Those that say something of snapshots."""
        return tuple(cycle for cycle in self.cycles if cycle.fate is not Fate.UNFIT)

    @property
    def ok(self) -> bool:
        """Whether there was something to keep, and all of it was kept."""
        return bool(self.judged) and all(cycle.fate is Fate.KEPT for cycle in self.judged)

    @property
    def templates(self) -> tuple[TemplateId, ...]:
        """In the order in which they were checked."""
        return tuple(dict.fromkeys(cycle.template for cycle in self.cycles))

    @property
    def save_s(self) -> float | None:
        """Median; None where nothing was saved."""
        return _median(self.cycles, lambda cycle: cycle.save_s)

    @property
    def open_s(self) -> float | None:
        """Median; None where nothing was opened."""
        return _median(self.cycles, lambda cycle: cycle.open_s)

    def count(self, fate: Fate) -> int:
        """How many states had that fate."""
        return sum(cycle.fate is fate for cycle in self.cycles)

    def of(self, template: TemplateId) -> tuple[Cycle, ...]:
        """The cycles of one template."""
        return tuple(cycle for cycle in self.cycles if cycle.template == template)


_STYLES = {Fate.KEPT: "green", Fate.ASTRAY: "bold red", Fate.UNFIT: "dim"}


def fidelity_table(report: FidelityReport) -> RenderableType:
    """The report for a terminal: a row for each template, why what was not kept was not, and the sums."""
    table = Table("template", "kept", "save ms", "open ms", "otherwise", box=None, padding=(0, 2, 0, 0))
    for template in report.templates:
        cycles = report.of(template)
        saved, opened = _median(cycles, lambda c: c.save_s), _median(cycles, lambda c: c.open_s)
        table.add_row(template, _share(cycles), _ms(saved), _ms(opened), _others(cycles))
    reasons = [
        Text.assemble((cycle.fate, _STYLES.get(cycle.fate, "yellow")), f" {cycle.task} at {cycle.step}: {cycle.reason}")
        for cycle in report.cycles
        if cycle.fate is not Fate.KEPT
    ]
    counts = ", ".join(f"{report.count(fate)} {fate}" for fate in Fate if report.count(fate))
    medians = f"medians: save {_ms(report.save_s)} ms, open {_ms(report.open_s)} ms"
    return Group(
        table, *reasons, f"{report.environment} by {report.store}: {counts}; {medians}; {report.seconds:.0f} s"
    )


def fidelity_matrix(reports: Sequence[FidelityReport]) -> Table:
    """Which way to keep states keeps what: a row for each template, a column for each report."""
    table = Table("template", *(report.store for report in reports), box=None, padding=(0, 2, 0, 0))
    for template in dict.fromkeys(template for report in reports for template in report.templates):
        table.add_row(template, *(_verdict(report.of(template)) for report in reports))
    return table


def fidelity_json(report: FidelityReport) -> str:
    """The report on one line of JSON."""
    counts = {fate: report.count(fate) for fate in Fate}
    sums = {
        "ok": report.ok,
        "judged": len(report.judged),
        "counts": counts,
        "save_s": report.save_s,
        "open_s": report.open_s,
    }
    return json.dumps({**sums, **asdict(report)})


def _verdict(cycles: Sequence[Cycle]) -> Text:
    judged = [cycle for cycle in cycles if cycle.fate is not Fate.UNFIT]
    if not judged:
        return Text("-", "dim")
    if all(cycle.fate is Fate.KEPT for cycle in judged):
        return Text("kept", "green")
    return Text.assemble("not kept: ", _others(judged))


def _share(cycles: Sequence[Cycle]) -> Text:
    judged = [cycle for cycle in cycles if cycle.fate is not Fate.UNFIT]
    kept = sum(cycle.fate is Fate.KEPT for cycle in judged)
    return Text(f"{kept}/{len(judged)}", "green" if kept == len(judged) else "yellow")


def _others(cycles: Sequence[Cycle]) -> Text:
    """The fates that are not "kept", with how often where that is not always."""
    counts = {fate: sum(cycle.fate is fate for cycle in cycles) for fate in Fate if fate is not Fate.KEPT}
    parts = [
        Text(fate if count == len(cycles) else f"{count}/{len(cycles)} {fate}", _STYLES.get(fate, "yellow"))
        for fate, count in counts.items()
        if count
    ]
    return Text(", ").join(parts)


def _median(cycles: Sequence[Cycle], seconds: Callable[[Cycle], float | None]) -> float | None:
    known = [value for value in map(seconds, cycles) if value is not None]
    return median(known) if known else None


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
