"""Methods compared: every one runs from the same policy, is measured, resumes, and is put into one table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from cairn.bench.efficiency import EfficiencyOptions, Method, Row, read_rows, run_efficiency, table_of, write_rows
from cairn.bench.efficiency_curves import curve
from cairn.bench.efficiency_report import draw_methods, efficiency_json, samples_spent, standings, steps_spent
from cairn.bench.efficiency_signals import selected
from cairn.bench.race import Mark, RaceBudget
from cairn.errors import ConfigError
from scripted_recipe import SCRIPTED

RECIPE = (
    SCRIPTED
    + """
[demonstrations]
per_template = 1
[imitation]
updates = 1
batch_size = 2
[tracks]
per_template = 2
[adaptive]
signal = "all"
answers = 2
suffixes = 2
estimate = 2
[snapshots]
store = "replay"
[reinforcement]
updates = 2
groups_per_update = 2
group_size = 2
rehearsal = 1
scheduler = "adaptive"
[rollout]
max_turns = 3
[evaluation]
per_template = 1
"""
)
MARK = Mark(
    update=0,
    steps=0,
    samples=0,
    restores=0,
    minutes=0.0,
    train_avg=0.0,
    train_low=0.0,
    train_high=0.1,
    train_pass=0.0,
    train_pass_low=0.0,
    train_pass_high=0.1,
)


def options(folder: Path, *methods: Method) -> EfficiencyOptions:
    (folder / "tiny.toml").write_text(RECIPE)
    budget = RaceBudget(steps=10_000, minutes=5.0, updates=3, every_steps=10_000, every_updates=2, tries=2)
    return EfficiencyOptions(
        suite="tiny",
        recipe=folder / "tiny.toml",
        methods=methods,
        seeds=1,
        work=folder / "work",
        results=folder / "results",
        budget=budget,
        local=budget,
    )


@pytest.mark.slow
async def test_every_method_runs_from_the_same_policy_and_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    table = await run_efficiency(options(tmp_path, *Method))
    rows = read_rows(table)
    assert {row.method for row in rows} == set(Method)
    for method in Method:
        marks = [row.mark for row in rows if row.method is method]
        assert [mark.update for mark in marks] == [0, 2, 3]
        assert marks[0].held_avg is not None
        assert marks[-1].held_avg is not None
    origins = json.loads(table.with_suffix(".json").read_text())
    assert {one["race"] for one in origins} == {"base", "start", *(f"{method}-0" for method in Method)}
    assert all({"machine", "command", "began"} <= set(one["made"]) for one in origins)
    assert len({row.mark.train_avg for row in rows if row.mark.update == 0 and row.method is not Method.BOTH}) == 1
    steps = {row.method: row.mark.steps for row in rows}
    assert {method for method, spent in steps.items() if not spent} == {
        Method.STAGE1, Method.VARIANCE, Method.ENTROPY, Method.EVERYWHERE, Method.RANDOM, Method.IMITATION
    }  # fmt: skip
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("race.json")}
    assert await run_efficiency(options(tmp_path, *Method)) == table
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert read_rows(table) == rows
    assert not list((tmp_path / "work").glob("*/snapshots"))  # nobody comes back to them


def race(method: Method, *marks: tuple[int, int, float], held: float = 0.5) -> list[Row]:
    found = [replace(MARK, steps=steps, samples=samples, train_avg=avg) for steps, samples, avg in marks]
    found[-1] = replace(found[-1], held_avg=held, held_pass=held)
    return [Row(method=method, seed=0, mark=mark) for mark in found]


def test_a_method_is_compared_where_it_came_to_what_vanilla_came_to_in_the_end(tmp_path: Path) -> None:
    rows = [
        *race(Method.VANILLA, (0, 0, 0.2), (500, 100, 0.5), (1000, 200, 0.6)),
        *race(Method.BOTH, (0, 50, 0.3), (200, 80, 0.55), (300, 90, 0.65), (900, 400, 0.7), held=0.6),
        *race(Method.ARPO, (0, 0, 0.2), (1000, 200, 0.4)),
    ]
    write_rows(rows, tmp_path / "t.csv")
    vanilla, both, arpo = standings(read_rows(tmp_path / "t.csv"))
    assert (vanilla.steps_vs_vanilla, vanilla.held_delta) == (1.0, 0.0)
    assert both.steps_vs_vanilla == pytest.approx(0.25, abs=0.01)  # half of the way from 200 to 300 steps
    assert both.samples_vs_vanilla == pytest.approx(0.425, abs=0.01)
    assert both.held_delta == pytest.approx(0.1)
    assert (arpo.reached, arpo.steps_vs_vanilla) == (0, None)
    told = json.loads(efficiency_json([("miniwob-long", (vanilla, both)), ("miniwob-chain", (vanilla, both))]))
    assert told["steps_vs_vanilla"] == told["chain_steps_vs_vanilla"] == pytest.approx(both.steps_vs_vanilla, abs=1e-4)


def test_curves_are_means_over_seeds_between_their_marks() -> None:
    races = [
        [row.mark for row in race(Method.HYBRID, (0, 0, 0.2), (100, 10, 0.4))],
        [row.mark for row in race(Method.HYBRID, (0, 0, 0.4), (50, 5, 0.8), (200, 20, 0.8))],
    ]
    found = curve(races, steps_spent)
    assert (found.spent[0], found.spent[-1]) == (0.0, 200.0)  # the first stays where it was at 100
    quarter = len(found.spent) // 4
    assert (found.spent[quarter], found.mean[quarter]) == (50.0, pytest.approx(0.55))
    assert found.margin[quarter] == pytest.approx(12.706 * 0.25, abs=0.01)  # half the difference, and t of one degree
    assert found.reached(0.3) == 0.0
    assert found.reached(0.55) == pytest.approx(50.0)
    assert found.reached(0.6) == pytest.approx(100.0)
    assert found.reached(0.7) is None


def test_single_answers_are_compared_at_the_samples_that_every_race_has_had() -> None:
    rows = [
        *race(Method.STAGE1, (0, 0, 0.2), (0, 10, 0.4), (0, 20, 0.8), held=0.6),
        *race(Method.RANDOM, (0, 0, 0.2), (0, 15, 0.5), held=0.3),
        *race(Method.VANILLA, (0, 0, 0.2), (100, 5, 0.9)),
    ]
    samples, (stage1, random) = selected(rows)
    assert samples == 15
    assert (stage1.equal.mean, stage1.best.mean, stage1.held.mean) == (pytest.approx(0.6), 0.8, 0.6)
    assert (random.equal.mean, random.samples) == (0.5, 15.0)
    assert selected(race(Method.STAGE1, (0, 0, 0.2), (0, 10, 0.4))) == (0, ())


def test_what_executes_nothing_is_a_point() -> None:
    marks = [row.mark for row in race(Method.STAGE1, (0, 0, 0.2), (0, 10, 0.4), (0, 20, 0.3))]
    found = curve([marks], steps_spent)
    assert (found.spent.tolist(), found.mean.tolist(), found.margin.tolist()) == ([0.0], [0.3], [0.0])
    assert curve([marks], samples_spent).reached(0.4) == pytest.approx(10.0)


def test_the_comparison_is_drawn(tmp_path: Path) -> None:
    rows = [*race(Method.VANILLA, (0, 0, 0.2), (1000, 200, 0.6)), *race(Method.STAGE1, (0, 0, 0.2), (0, 60, 0.5))]
    draw_methods(rows, tmp_path / "new" / "methods.png", title="methods")
    with Image.open(tmp_path / "new" / "methods.png") as picture:
        assert picture.size[0] > picture.size[1]


def test_a_table_that_is_not_there_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run `cairn bench efficiency` first"):
        read_rows(table_of(tmp_path, "miniwob-long"))
    (tmp_path / "bad.csv").write_text("method,seed\nvanilla,x\n")
    with pytest.raises(ConfigError, match="damaged"):
        read_rows(tmp_path / "bad.csv")
