"""What schedulers cost, and what they save: timed with many tasks, and compared by simulation."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table as Sheet

from cairn.bench.simulation import Spent, Table, TableOptions, samples_to, simulate, steps_to
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.ports import Scheduler
from cairn.schedule.adaptive import Adaptive
from cairn.schedule.orders import Writer
from cairn.schedule.signals import Selection, Signal
from cairn.schedule.tasks import TaskRounds
from cairn.testing.groups import played_group


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerBenchOptions:
    """What is measured."""

    tasks: int = 100_000
    steps: int = 5  # of each task, where the scheduler is timed
    plans: int = 20_000  # of each kind
    horizons: tuple[int, ...] = (5, 10, 20, 50, 100, 200)
    simulated: int = 24  # tasks of a simulation
    seeds: int = 3
    until: float = 0.8  # mean success at which a simulation ends
    at_most: int = 40_000  # plans of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What adaptive training spends, as a share of what vanilla does to the same success; medians over the seeds."""

    horizon: int
    success: float  # that is compared
    vanilla_steps: float
    steps: float
    samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerBench:
    """The result."""

    tasks: int
    ms_per_plan: float  # the worst of the kinds, asked for and observed
    by_kind: tuple[tuple[str, float], ...]
    savings: tuple[Saving, ...]


def bench_scheduler(
    options: SchedulerBenchOptions | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> SchedulerBench:
    """Time plans of every kind, then simulate training with horizons of several lengths."""
    options = options or SchedulerBenchOptions()
    progress(f"{options.tasks} tasks")
    by_kind = tuple(_timed(options, progress))
    savings: list[Saving] = []
    for horizon in options.horizons:
        progress(f"horizon {horizon}")
        savings.append(_saving(horizon, options))
    return SchedulerBench(
        tasks=options.tasks,
        ms_per_plan=max(ms for _, ms in by_kind),
        by_kind=by_kind,
        savings=tuple(savings),
    )


# ── what a plan costs ─────────────────────────────────────────────────────────


class _Answers:
    """Groups without a rollout: of each size one, half of it solved, under whatever plan it is wanted."""

    def __init__(self) -> None:
        self._members: dict[int, ScoredGroup] = {}

    def group(self, plan: RolloutPlan) -> ScoredGroup:
        size = plan.group_size
        if size not in self._members:
            self._members[size] = played_group(plan, [float(i % 2) for i in range(size)])
        return ScoredGroup(plan=plan, members=self._members[size].members)


def _timed(options: SchedulerBenchOptions, progress: Callable[[str], None]) -> list[tuple[str, float]]:
    table = Table(TableOptions(tasks=options.tasks, steps=options.steps))
    tracks = table.tracks()
    writer = Writer(name="bench", seed=0)
    everything = Selection(signal=Signal.ALL)
    surveying = Adaptive(tracks=tracks, writer=writer)
    learning = Adaptive(tracks=tracks, writer=writer, selection=everything)
    vanilla = TaskRounds(tasks=table.tasks, group_size=8, seed=0)
    found = [("survey", _ms_per_plan(surveying, options.plans))]
    progress("estimates")
    found.append(("estimate", _ms_per_plan(learning, options.tasks)))
    progress("visits")
    found.append(("visit", _ms_per_plan(learning, options.plans)))
    found.append(("vanilla", _ms_per_plan(vanilla, options.plans)))
    return found


def _ms_per_plan(scheduler: Scheduler, plans: int) -> float:
    answers = _Answers()
    spent = 0.0
    for _ in range(plans):
        begun = time.perf_counter()
        plan = scheduler.next_plan()
        spent += time.perf_counter() - begun
        group = answers.group(plan)
        begun = time.perf_counter()
        scheduler.observe(group)
        spent += time.perf_counter() - begun
    return 1000 * spent / plans


# ── what it saves ─────────────────────────────────────────────────────────────


def _saving(horizon: int, options: SchedulerBenchOptions) -> Saving:
    pairs = [_pair(horizon, seed, options) for seed in range(options.seeds)]
    reached = [min(v.curve[-1][2], a.curve[-1][2]) for v, a in pairs]
    spent = [_or_all(steps_to(v, success), v.steps) for (v, _), success in zip(pairs, reached, strict=True)]
    return Saving(
        horizon=horizon,
        success=statistics.median(reached),
        vanilla_steps=statistics.median(spent),
        steps=_ratio(pairs, reached, steps_to, lambda spent: spent.steps),
        samples=_ratio(pairs, reached, samples_to, lambda spent: spent.samples),
    )


def _pair(horizon: int, seed: int, options: SchedulerBenchOptions) -> tuple[Spent, Spent]:
    """Vanilla and adaptive, from one and the same policy, whose roots succeed about equally often at any horizon."""
    described = TableOptions(
        tasks=options.simulated,
        steps=horizon,
        sure=0.6 ** (1 / horizon),
        hesitant=min(0.4, 2 / horizon),
        seed=seed,
    )
    one, other = Table(described), Table(described)
    vanilla = TaskRounds(tasks=one.tasks, group_size=8, seed=seed)
    adaptive = Adaptive(tracks=other.tracks(), writer=Writer(name="simulated", seed=seed))
    return (
        simulate(vanilla, one, until=options.until, at_most=options.at_most),
        simulate(adaptive, other, until=options.until, at_most=options.at_most),
    )


def _ratio(
    pairs: Sequence[tuple[Spent, Spent]],
    reached: Sequence[float],
    to: Callable[[Spent, float], int | None],
    spent: Callable[[Spent], int],
) -> float:
    shares = [
        _or_all(to(adaptive, success), spent(adaptive)) / max(1, _or_all(to(vanilla, success), spent(vanilla)))
        for (vanilla, adaptive), success in zip(pairs, reached, strict=True)
    ]
    return statistics.median(shares)


def _or_all(found: int | None, everything: int) -> int:
    return everything if found is None else found


def scheduler_table(result: SchedulerBench) -> Sheet:
    """One line for each horizon."""
    sheet = Sheet("horizon", "success", "steps, vanilla", "steps, adaptive / vanilla", "samples, adaptive / vanilla")
    for one in result.savings:
        sheet.add_row(
            str(one.horizon),
            f"{one.success:.2f}",
            f"{one.vanilla_steps:,.0f}",
            f"{one.steps:.1%}",
            f"{one.samples:.1%}",
        )
    return sheet


def scheduler_json(result: SchedulerBench) -> str:
    """On one line."""
    return json.dumps(
        {
            "ms_per_plan": round(result.ms_per_plan, 4),
            "tasks": result.tasks,
            "by_kind": {name: round(ms, 4) for name, ms in result.by_kind},
            "savings": [asdict(one) for one in result.savings],
        }
    )
