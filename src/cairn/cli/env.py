"""`cairn env`: what environments there are, and whether one keeps its promises."""

from typing import Annotated

import typer
from rich.table import Table

from cairn.cli.console import ERR, OUT, print_json, print_table, reported
from cairn.cli.running import run_async

app = typer.Typer(no_args_is_help=True, help="List and check environments.")

Json = Annotated[bool, typer.Option("--json", help="One line of JSON instead of a table.")]
Name = Annotated[str, typer.Argument(help="An environment, as `cairn env list` names it.")]


@app.command("list")
def list_environments(*, as_json: Json = False) -> None:
    """List the environments that come with Cairn.

    Example: cairn env list
    """
    from cairn.app.environments import NAMES, describe

    rows = [(name, describe(name)) for name in NAMES]
    if as_json:
        print_json({name: {"templates": d.templates, "experts": d.experts} for name, d in rows})
        return
    table = Table("environment", "tasks", "with an expert", "what it is")
    for name, described in rows:
        table.add_row(name, str(described.templates), str(described.experts), described.summary)
    print_table(table)


@app.command()
def tasks(name: Name, *, as_json: Json = False) -> None:
    """List an environment's tasks, their turn limits, and whether a scripted expert solves them.

    Example: cairn env tasks miniwob
    """
    from cairn.app.environments import environment_named, short_name

    with reported():
        environment = environment_named(name)
        rows = [(short_name(t, environment), t.max_turns, environment.has_expert(t)) for t in environment.templates]
    if as_json:
        print_json({task: {"max_turns": turns, "expert": expert} for task, turns, expert in rows})
        return
    table = Table("task", "turns at most", "expert")
    for task, turns, expert in rows:
        table.add_row(task, str(turns), "yes" if expert else "")
    print_table(table)
    OUT.print(f"{len(rows)} tasks, {sum(r[2] for r in rows)} with an expert")


@app.command()
def check(
    name: Name,
    *,
    task: Annotated[list[str] | None, typer.Option("--task", help="Check only this task; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Training tasks of each template to check.")] = 3,
    as_json: Json = False,
) -> None:
    """Check that an environment keeps the promises that training builds on; exit status 1 where one is broken.

    Reset purity, determinism, experts that succeed, no-op and random agents that do not, coordinates by a drawn
    target through every codec, leaks of processes and files, latency percentiles.

    Example: cairn env check miniwob --task click-test-2 --task login-user
    """
    from cairn.app.environments import check_named
    from cairn.testing.environment_report import report_json, report_table

    with reported(), ERR.status("checking") as status:
        report = run_async(
            check_named(name, task or (), seeds=seeds, progress=lambda what: status.update(f"checking {what}"))
        )
    if as_json:
        typer.echo(report_json(report))
    else:
        OUT.print(report_table(report))
    raise typer.Exit(0 if report.ok else 1)
