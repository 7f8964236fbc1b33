"""Commands and options are promises: they change on purpose, and `cli.txt` beside this file changes with them.

To accept a change: `python tests/arch/test_frozen_cli.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import typer.main
from typer.core import TyperGroup

from cairn.cli.main import app

FROZEN = Path(__file__).with_name("cli.txt")


def _lines() -> Iterator[str]:
    commands = [("cairn", typer.main.get_command(app))]
    while commands:
        path, command = commands.pop(0)
        flags = [
            " | ".join(p.opts) if p.param_type_name == "option" else (p.name or "").upper() for p in command.params
        ]
        yield " ".join([path, *(f"[{flag}]" for flag in sorted(flags))])
        if isinstance(command, TyperGroup):
            commands += [(f"{path} {name}", each) for name, each in sorted(command.commands.items())]


def test_the_command_line_is_the_frozen_one() -> None:
    assert list(_lines()) == FROZEN.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    FROZEN.write_text("".join(f"{line}\n" for line in _lines()), encoding="utf-8")
