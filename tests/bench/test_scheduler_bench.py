"""Simulated training: what adaptive starts save, and that nothing of it is left to chance."""

import json

import pytest

from cairn.bench.scheduler import SchedulerBenchOptions, bench_scheduler, scheduler_json
from cairn.bench.simulation import Table, TableOptions, samples_to, simulate, steps_to
from cairn.ports import Scheduler
from cairn.schedule.adaptive import Adaptive
from cairn.schedule.orders import Writer
from cairn.schedule.tasks import TaskRounds

OPTIONS = TableOptions(tasks=8, steps=12)


def vanilla(table: Table) -> Scheduler:
    return TaskRounds(tasks=table.tasks, group_size=8, seed=0)


def adaptive(table: Table) -> Scheduler:
    return Adaptive(tracks=table.tracks(), writer=Writer(name="a", seed=0))


@pytest.mark.parametrize("make", [vanilla, adaptive])
def test_practice_makes_the_table_better_and_repeats_itself(make) -> None:
    tables = [Table(OPTIONS), Table(OPTIONS)]
    spent = [simulate(make(table), table, until=0.7, at_most=3000) for table in tables]
    assert spent[0] == spent[1]
    assert spent[0].curve[-1][2] >= 0.7 > Table(OPTIONS).success


def test_adaptive_training_spends_less_than_vanilla_to_the_same_success() -> None:
    tables = [Table(OPTIONS), Table(OPTIONS)]
    whole = simulate(vanilla(tables[0]), tables[0], until=0.7, at_most=6000)
    parts = simulate(adaptive(tables[1]), tables[1], until=0.7, at_most=6000)
    for to in (steps_to, samples_to):
        assert (to(parts, 0.7) or 10**9) < 0.6 * (to(whole, 0.7) or 0)


def test_answers_at_recorded_states_execute_nothing() -> None:
    table = Table(OPTIONS)
    spent = simulate(adaptive(table), table, until=1.0, at_most=8 * 12)  # the survey alone
    assert spent.steps == 0
    assert spent.samples == 0


def test_the_longer_the_horizon_the_more_is_saved() -> None:
    options = SchedulerBenchOptions(tasks=50, plans=50, horizons=(5, 20), simulated=8, seeds=1, until=0.7)
    told = json.loads(scheduler_json(bench_scheduler(options)))
    assert told["savings"][1]["steps"] < told["savings"][0]["steps"] < 1
    assert set(told["by_kind"]) == {"survey", "estimate", "visit", "vanilla"}
