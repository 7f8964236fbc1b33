"""What the check of an environment found, as data, as a table and as JSON."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cairn.data.ids import TemplateId
from cairn.testing.playing import Latency


class Verdict(StrEnum):
    """What a check came to. A warning is for a person to judge; only a failure breaks the contract."""

    OK = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Check(StrEnum):
    """What is checked, for each template unless said otherwise."""

    PURITY = "purity"  # the same seed opens the same episode, whatever was played in between
    DETERMINISM = "determinism"  # the same actions pass through the same states
    SEEDS = "seeds"  # different seeds open different episodes
    OBSERVATION = "observation"  # ids count from 1, boxes are finite, screenshots exist
    IMPOSSIBLE = "impossible"  # an impossible action is a message and changes nothing
    ISOLATION = "isolation"  # what is done in one session is not seen in another
    CLOSE = "close"  # closing twice is closing once
    EXPERT = "expert"  # the scripted expert solves it
    NOOP = "noop"  # doing nothing does not
    RANDOM = "random"  # blind clicking does not, or not often
    COORDINATES = "coordinates"  # a drawn target is hit; once for the whole environment
    LEAKS = "leaks"  # closing leaves nothing behind; once for the whole environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict and why; the reason may be empty for a pass."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check of one template, or of the environment as a whole (template None)."""

    check: Check
    template: TemplateId | None
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReport:
    """All that one check of an environment found."""

    environment: str
    results: tuple[Result, ...]
    latencies: tuple[Latency, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not any(r.finding.verdict is Verdict.FAIL for r in self.results)

    def count(self, verdict: Verdict) -> int:
        """How many checks came to `verdict`."""
        return sum(r.finding.verdict is verdict for r in self.results)


_MARKS = {
    Verdict.OK: Text("✓", "green"),
    Verdict.WARN: Text("!", "yellow"),
    Verdict.FAIL: Text("✗", "bold red"),
    Verdict.SKIP: Text("·", "dim"),
}


def report_table(report: EnvironmentReport) -> RenderableType:
    """The report for a terminal: a mark for each check, the reasons of what did not pass, and the latencies."""
    counts = ", ".join(f"{report.count(v)} {v}" for v in Verdict)
    verdict = Text("conforms", "bold green") if report.ok else Text("does not conform", "bold red")
    summary = Text.assemble(report.environment, " ", verdict, f": {counts} in {report.seconds:.1f} s")
    return Group(_matrix(report), *_reasons(report), _latency_table(report), summary)


def report_json(report: EnvironmentReport) -> str:
    """The report on one line of JSON."""
    return json.dumps({"ok": report.ok, **asdict(report)})


_COLUMNS = {
    Check.PURITY: "pure",
    Check.DETERMINISM: "det",
    Check.SEEDS: "seed",
    Check.OBSERVATION: "obs",
    Check.IMPOSSIBLE: "imp",
    Check.ISOLATION: "iso",
    Check.CLOSE: "cls",
    Check.EXPERT: "exp",
    Check.NOOP: "noop",
    Check.RANDOM: "rand",
}  # short: with MiniWoB's longest name, a row fits in 80 characters


def _matrix(report: EnvironmentReport) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("template", no_wrap=True)
    for name in _COLUMNS.values():
        table.add_column(name, no_wrap=True, justify="center")
    marks = {(r.template, r.check): _MARKS[r.finding.verdict] for r in report.results}
    for template in dict.fromkeys(r.template for r in report.results if r.template):
        table.add_row(template, *(marks.get((template, check), Text("")) for check in _COLUMNS))
    return table


def _reasons(report: EnvironmentReport) -> list[Text]:
    quiet = (Verdict.OK, Verdict.SKIP)
    return [
        Text.assemble(_MARKS[r.finding.verdict], f" {r.template or report.environment}: {r.check}: {r.finding.reason}")
        for r in report.results
        if r.template is None or r.finding.verdict not in quiet
    ]


def _latency_table(report: EnvironmentReport) -> Table:
    table = Table("call", "count", "p50 ms", "p90 ms", "p99 ms", "longest ms", box=box.SIMPLE_HEAD)
    for latency in report.latencies:
        spread = (latency.p50, latency.p90, latency.p99, latency.longest)
        table.add_row(latency.call, str(latency.count), *(f"{1000 * s:.1f}" for s in spread))
    return table
