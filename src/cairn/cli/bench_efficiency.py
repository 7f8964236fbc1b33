"""`cairn bench efficiency`: what methods spend to get equally far."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.console import ERR, print_table, reported
from cairn.cli.recipes import find
from cairn.errors import ConfigError

SUITES = ("miniwob-long", "miniwob-chain")


def efficiency(
    *,
    suite: Annotated[str, typer.Option(help="A recipe: its tasks, policy and settings are those of every method.")] = (
        "miniwob-long"
    ),
    methods: Annotated[str, typer.Option(help="Also stage1-variance, -entropy, -all and -random: other pivots.")] = (
        "vanilla,arpo,stage1,hybrid,stage1+hybrid"
    ),
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of each race.")] = 6_000,
    minutes: Annotated[float, typer.Option(min=0.1, help="Of each race at most.")] = 15.0,
    local_updates: Annotated[int, typer.Option(min=1, help="Of `stage1` and its like.")] = 20,
    work: Annotated[Path, typer.Option(help="Where the runs lie; what is finished there is not run again.")] = Path(
        "runs/efficiency"
    ),
    results: Annotated[Path, typer.Option(help="Where the table of raw results goes.")] = Path("benchmarks/results"),
    report: Annotated[Path | None, typer.Option(help="Run nothing: print and draw the tables of this folder.")] = None,
) -> None:
    """Compare methods from one and the same policy: environment steps and samples until vanilla's final success.

    Stopped, it goes on where it was. The last line is JSON.

    Examples: cairn bench efficiency --suite miniwob-long --seeds 3

    cairn bench efficiency --report benchmarks/results
    """
    with reported():
        if report is None:
            wanted = _Wanted(
                suite=suite, methods=tuple(methods.split(",")), seeds=seeds, work=work / suite, results=results
            )
            _run(wanted, steps=steps, minutes=minutes, local_updates=local_updates)
            _tell(results, [suite])
        else:
            _tell(report, SUITES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is compared."""

    suite: str
    methods: tuple[str, ...]
    seeds: int
    work: Path
    results: Path


def _run(wanted: _Wanted, *, steps: int, minutes: float, local_updates: int) -> None:
    from cairn.bench.efficiency import EfficiencyOptions, Method, run_efficiency
    from cairn.bench.race import RaceBudget

    unknown = [name for name in wanted.methods if name not in set(Method)]
    if unknown:
        raise ConfigError(f"there is no method {unknown[0]!r}: choose of {', '.join(Method)}")
    budget = RaceBudget(steps=steps, minutes=minutes, updates=10_000, every_steps=max(1, steps // 8), every_updates=40)
    options = EfficiencyOptions(
        suite=wanted.suite,
        recipe=find(wanted.suite),
        methods=tuple(Method(name) for name in wanted.methods),
        seeds=wanted.seeds,
        work=wanted.work,
        results=wanted.results,
        budget=budget,
        local=replace(budget, updates=local_updates, every_steps=steps, every_updates=max(1, local_updates // 5)),
    )
    with ERR.status("racing") as status:
        run_efficiency(options, progress=status.update)


def _tell(folder: Path, names: Sequence[str]) -> None:
    from cairn.bench.efficiency import read_rows, table_of
    from cairn.bench.efficiency_report import draw_methods, efficiency_json, efficiency_table, standings
    from cairn.bench.efficiency_signals import selected, signals_table

    there = [name for name in names if table_of(folder, name).exists()]
    if not there:
        raise ConfigError(f"{folder} holds no table of `cairn bench efficiency`")
    tables = {name: read_rows(table_of(folder, name)) for name in there}
    suites = [(name, standings(rows)) for name, rows in tables.items()]
    for name, found in suites:
        print_table(efficiency_table(found, title=name))
        samples, chosen = selected(tables[name])
        if chosen:
            print_table(signals_table(samples, chosen, title=name))
        draw_methods(tables[name], table_of(folder, name).with_suffix(".png"), title=name)
    typer.echo(efficiency_json(suites))
