"""`cairn clean`: what processes that ended badly have left on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cairn.cli.console import OUT, print_json, print_table, reported


def clean(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    folder: Annotated[
        list[Path] | None, typer.Option("--in", help="Also look for unfinished snapshots here; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON instead of a table.")] = False,
) -> None:
    """Remove processes, mounts, control groups and files of Cairn's whose owner is gone. Nothing else is touched.

    The next run does that by itself, too. Exit status 1 where something could not be removed.

    Example: cairn clean --dry-run
    """
    with reported():
        from cairn.app.cleaning import abandoned_things, remove_things

        found = abandoned_things(folder or [Path("snapshots")])
        stayed = () if dry_run else remove_things(found)
    if as_json:
        rows = [{"kind": one.kind, "what": one.what, "where": str(one.where)} for one in found]
        print_json({"found": rows, "removed": 0 if dry_run else len(found) - len(stayed)})
    else:
        table = Table("kind", "what", "where")
        for one in found:
            table.add_row(one.kind, one.what, str(one.where))
        if found:
            print_table(table)
        said = "would be removed" if dry_run else f"removed, {len(stayed)} could not be" if stayed else "removed"
        OUT.print(f"{len(found) - len(stayed)} {said}" if found else "nothing was left behind")
    raise typer.Exit(1 if stayed else 0)
