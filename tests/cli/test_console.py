"""How commands speak."""

import io

import pytest
import typer
from rich.console import Console
from rich.table import Table

from cairn.cli import console


def test_what_does_not_fit_into_a_table_is_broken_and_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(console, "OUT", Console(file=told, width=24))
    table = Table("environment", "consequences")
    table.add_row("click-checkboxes-large", "0123456789")
    console.print_table(table)
    assert "…" not in told.getvalue()
    shown = "".join(c for line in told.getvalue().splitlines() for c in line.split("│")[1:2]).replace(" ", "")
    assert "click-checkboxes-large" in shown


def test_being_interrupted_is_no_error_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stopped, console.reported():
        raise KeyboardInterrupt
    assert stopped.value.exit_code == 130
    assert capsys.readouterr().err == "stopped\n"
