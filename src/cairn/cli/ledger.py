"""`cairn ledger`: what runs have spent, and what they got for it."""

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.console import print_json, print_table, reported


def ledger(
    runs: Annotated[list[Path], typer.Argument(help="A run's directory; several are compared with the first.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON instead of tables.")] = False,
) -> None:
    """Show what a run has spent by purpose and by task, or compare runs.

    Environment steps, sessions opened, saved and restored, judged trajectories, groups that gave no gradient and the
    steps that they took, tokens, time.

    Example: cairn ledger runs/adaptive runs/vanilla
    """
    with reported():
        import cairn
        from cairn.dashboard.ledger import by_purpose, by_template, compared, totals

        ledgers = [cairn.open_run(run).ledger for run in runs]
    names = [run.name for run in runs]
    if as_json:
        print_json({str(run): totals(one) for run, one in zip(runs, ledgers, strict=True)})
    elif len(runs) == 1:
        print_table(by_purpose(ledgers[0]))
        print_table(by_template(ledgers[0]))
    else:
        print_table(compared(ledgers, names))
