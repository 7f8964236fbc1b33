"""How commands speak: one sentence for an error, tables for people, JSON on the last line for programs."""

import dataclasses
import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table

from cairn.cli.running import STOPPED
from cairn.errors import BoundaryError, CairnError, CircuitOpenError, ConfigError, InvariantError, SetupError

_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120  # columns of a file, or of a pipe
OUT = Console(highlight=False, width=_WIDTH)
ERR = Console(stderr=True, highlight=False)

EXIT_CODES: tuple[tuple[type[CairnError], int], ...] = (
    (ConfigError, 2),
    (SetupError, 3),
    (CircuitOpenError, 4),
    (BoundaryError, 5),
)


@contextmanager
def reported() -> Generator[None]:
    """Turn an expected failure into one sentence and an exit code; our own bugs keep their traceback."""
    try:
        yield
    except InvariantError:
        raise
    except CairnError as error:
        ERR.print(f"[bold red]error:[/] {_plain(str(error))}", soft_wrap=True)
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
        raise typer.Exit(code) from error
    except KeyboardInterrupt:
        ERR.print("stopped")
        raise typer.Exit(STOPPED) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        ERR.print(f"[bold red]error:[/] {_plain(f'{error.strerror or error}{where}')}", soft_wrap=True)
        raise typer.Exit(1) from error


def print_table(table: Table) -> None:
    """Write a table to standard output; what does not fit is broken, never cut off."""
    for column in table.columns:
        column.overflow = "fold"
    OUT.print(table)


def print_json(value: Mapping[str, object]) -> None:
    """Write one line of JSON to standard output, unstyled; meant to be the last line."""
    OUT.file.flush()
    sys.stdout.write(json.dumps(value, default=_jsonable) + "\n")
    sys.stdout.flush()


def _jsonable(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
