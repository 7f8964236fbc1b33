"""`cairn doctor`: is this machine ready, and what to do where it is not."""

import dataclasses
from typing import Annotated

import typer
from rich.table import Table

from cairn.cli.console import OUT, print_json, print_table


def doctor(
    *, as_json: Annotated[bool, typer.Option("--json", help="One line of JSON instead of a table.")] = False
) -> None:
    """Check this machine; exit status 1 where something needed is missing.

    Example: cairn doctor
    """
    from cairn.app.doctor import diagnose

    findings = diagnose()
    ready = all(f.ok or not f.needed for f in findings)
    if as_json:
        print_json({"ready": ready, "findings": [dataclasses.asdict(f) for f in findings]})
    else:
        table = Table("", "what", "found", "what to do")
        for f in findings:
            mark = "[green]ok[/]" if f.ok else "[red]missing[/]" if f.needed else "[yellow]note[/]"
            table.add_row(mark, f.what, f.detail, f.fix if not f.ok or "faster" in f.fix else "")
        print_table(table)
        OUT.print("ready: [bold]cairn train quickstart[/]" if ready else "[red]not ready[/]")
    raise typer.Exit(0 if ready else 1)
