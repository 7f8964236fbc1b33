"""`cairn bench efficiency`: what methods spend to get equally far."""

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.console import ERR, OUT, reported
from cairn.cli.recipes import find

SUITES = ("miniwob-long", "miniwob-chain")


def efficiency(
    *,
    suite: Annotated[str, typer.Option(help="A recipe: its tasks, policy and settings are those of every method.")] = (
        "miniwob-long"
    ),
    methods: Annotated[str, typer.Option(help="Of vanilla, arpo, stage1, hybrid and stage1+hybrid.")] = (
        "vanilla,arpo,stage1,hybrid,stage1+hybrid"
    ),
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of each race.")] = 12_000,
    minutes: Annotated[float, typer.Option(min=0.1, help="Of each race at most.")] = 9.0,
    local_updates: Annotated[int, typer.Option(min=1, help="Of stage one.")] = 60,
    work: Annotated[Path, typer.Option(help="Where the runs lie; what is finished there is not run again.")] = Path(
        "runs/efficiency"
    ),
    results: Annotated[Path, typer.Option(help="Where the table of raw results goes.")] = Path("benchmarks/results"),
    report: Annotated[Path | None, typer.Option(help="Run nothing: print the tables of this folder.")] = None,
) -> None:
    """Compare methods from one and the same policy: environment steps and samples until vanilla's final success.

    Stopped, it goes on where it was. The last line is JSON.

    Examples: cairn bench efficiency --suite miniwob-long --seeds 3

    cairn bench efficiency --report benchmarks/results
    """
    with reported():
        from cairn.bench.efficiency import EfficiencyOptions, Method, read_rows, run_efficiency, table_of
        from cairn.bench.efficiency_report import efficiency_json, efficiency_table, standings
        from cairn.bench.race import RaceBudget
        from cairn.errors import ConfigError

        if report is None:
            unknown = [name for name in methods.split(",") if name not in set(Method)]
            if unknown:
                raise ConfigError(f"there is no method {unknown[0]!r}: choose of {', '.join(Method)}")
            budget = RaceBudget(
                steps=steps, minutes=minutes, updates=10_000, every_steps=max(1, steps // 12), every_updates=25
            )
            options = EfficiencyOptions(
                suite=suite,
                recipe=find(suite),
                methods=tuple(Method(name) for name in methods.split(",")),
                seeds=seeds,
                work=work / suite,
                results=results,
                budget=budget,
                local=RaceBudget(
                    steps=steps, minutes=minutes, updates=local_updates, every_steps=steps, every_updates=10
                ),
            )
            with ERR.status("racing") as status:
                run_efficiency(options, progress=status.update)
        folder, wanted = (results, [suite]) if report is None else (report, SUITES)
        suites = [
            (name, standings(read_rows(table_of(folder, name)))) for name in wanted if table_of(folder, name).exists()
        ]
        if not suites:
            raise ConfigError(f"{folder} holds no table of `cairn bench efficiency`")
        for name, found in suites:
            OUT.print(efficiency_table(found, title=name))
        typer.echo(efficiency_json(suites))
