"""What the environment benchmark found: medians, ratios, a table, a line of JSON."""

import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from cairn.bench.competitors import Contender
from cairn.errors import InvariantError


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement."""

    contender: Contender
    sessions: int
    wall: float
    resets: tuple[float, ...]  # seconds each, first observation included
    steps: tuple[float, ...]  # seconds each, screenshot included; the episode goes on
    ends: tuple[float, ...]  # seconds each: the steps that ended an episode, with its verdict
    pss_mb: float  # of all browser and driver processes
    cpu: float  # seconds of all processes, Cairn's own and the workers' included, resets included

    @property
    def per_second(self) -> float:
        """Steps of all sessions per second of wall clock, resets and last steps included."""
        return (len(self.steps) + len(self.ends)) / self.wall

    @property
    def step_rate(self) -> float:
        """Steps with a picture per second that one session spends in them."""
        return len(self.steps) / sum(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Medians over the repetitions of one setting; `low` and `high` are the extremes of `per_second`."""

    contender: str
    sessions: int
    per_second: float
    low: float
    high: float
    step_rate: float
    cpu_ms: float  # per step, resets included: what a loaded machine cannot distort
    step_ms: float
    step_ms_p95: float
    end_ms: float  # the step that ends an episode
    reset_ms: float
    pss_mb_per_session: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvBench:
    """The result. Ratios compare one session's steps with a picture with the other's, within the same repetition."""

    steps_per_s: float  # Cairn, one session, steps with a picture
    best_per_s: float  # Cairn, at the best number of sessions, resets counted
    vs_selenium: float | None
    vs_browsergym: float | None
    vs_selenium_overall: float | None  # resets and last steps included
    vs_browsergym_overall: float | None
    speeds: tuple[Speed, ...]
    cpus: int


def summarise(runs: Sequence[Run]) -> EnvBench:
    """Medians and ratios. Raises `InvariantError` without a run of Cairn's with one session."""
    settings = dict.fromkeys((run.contender, run.sessions) for run in runs)
    speeds = tuple(_speed([r for r in runs if (r.contender, r.sessions) == setting]) for setting in settings)
    alone = [run for run in runs if run.contender is Contender.CAIRN and run.sessions == 1]
    if not alone:
        raise InvariantError("one session of Cairn's is what the others are compared with")
    selenium = [run for run in runs if run.contender is Contender.SELENIUM and run.sessions == 1]
    browsergym = [run for run in runs if run.contender is Contender.BROWSERGYM and run.sessions == 1]
    return EnvBench(
        steps_per_s=statistics.median(run.step_rate for run in alone),
        best_per_s=max(speed.per_second for speed in speeds if speed.contender == Contender.CAIRN),
        vs_selenium=_ratio(alone, selenium, lambda run: run.step_rate),
        vs_browsergym=_ratio(alone, browsergym, lambda run: run.step_rate),
        vs_selenium_overall=_ratio(alone, selenium, lambda run: run.per_second),
        vs_browsergym_overall=_ratio(alone, browsergym, lambda run: run.per_second),
        speeds=speeds,
        cpus=os.cpu_count() or 1,
    )


def _ratio(ours: Sequence[Run], theirs: Sequence[Run], rate: Callable[[Run], float]) -> float | None:
    if not theirs:
        return None
    return statistics.median(rate(a) / rate(b) for a, b in zip(ours, theirs, strict=True))


def _speed(runs: Sequence[Run]) -> Speed:
    steps = sorted(second for run in runs for second in run.steps)
    rates = [run.per_second for run in runs]
    return Speed(
        contender=runs[0].contender.value,
        sessions=runs[0].sessions,
        per_second=statistics.median(rates),
        low=min(rates),
        high=max(rates),
        step_rate=statistics.median(run.step_rate for run in runs),
        cpu_ms=1000 * statistics.median(run.cpu / (len(run.steps) + len(run.ends)) for run in runs),
        step_ms=1000 * statistics.median(steps),
        step_ms_p95=1000 * steps[min(len(steps) - 1, int(0.95 * len(steps)))],
        end_ms=1000 * statistics.median(second for run in runs for second in run.ends),
        reset_ms=1000 * statistics.median(second for run in runs for second in run.resets),
        pss_mb_per_session=statistics.median(run.pss_mb / run.sessions for run in runs),
    )


def env_table(bench: EnvBench) -> Table:
    """One row per setting."""
    table = Table(title=f"steps with screenshot, same tasks and actions, {bench.cpus} CPUs")
    for column in ("environment", "sessions", "steps/s with resets", "range", "steps/s", "step ms", "p95", "last ms",
                   "reset ms", "CPU ms/step", "PSS MB/session"):  # fmt: skip
        table.add_column(column, justify="left" if column == "environment" else "right")
    for speed in bench.speeds:
        table.add_row(
            speed.contender,
            str(speed.sessions),
            f"{speed.per_second:.1f}",
            f"{speed.low:.1f}-{speed.high:.1f}",
            f"{speed.step_rate:.1f}",
            f"{speed.step_ms:.1f}",
            f"{speed.step_ms_p95:.1f}",
            f"{speed.end_ms:.1f}",
            f"{speed.reset_ms:.0f}",
            f"{speed.cpu_ms:.1f}",
            f"{speed.pss_mb_per_session:.0f}",
        )
    return table


def env_json(bench: EnvBench) -> str:
    """The result as one line; `sessions` maps Cairn's session counts to steps per second, resets included."""
    ours = [speed for speed in bench.speeds if speed.contender == Contender.CAIRN]
    return json.dumps(
        {
            "steps_per_s": round(bench.steps_per_s, 1),
            "vs_selenium": _rounded(bench.vs_selenium),
            "vs_browsergym": _rounded(bench.vs_browsergym),
            "vs_selenium_overall": _rounded(bench.vs_selenium_overall),
            "vs_browsergym_overall": _rounded(bench.vs_browsergym_overall),
            "sessions": {str(speed.sessions): round(speed.per_second, 1) for speed in ours},
            "best_per_s": round(bench.best_per_s, 1),
            "settings": [asdict(speed) for speed in bench.speeds],
        }
    )


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 1)
