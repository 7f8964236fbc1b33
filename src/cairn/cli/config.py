"""`cairn config`: what a recipe comes to."""

import tomllib
from typing import Annotated

import typer
from rich.syntax import Syntax

from cairn.cli.console import OUT, print_json, reported
from cairn.cli.recipes import find
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.config.stages import load_stages

app = typer.Typer(no_args_is_help=True, help="Look at recipes.")


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or the path of a .toml file.")],
    *,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key; may be repeated.")
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Only what differs from the defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON instead.")] = False,
) -> None:
    """Show the resolved configuration of a recipe.

    Example: cairn config show quickstart --diff
    """
    with reported():
        stages = load_stages(find(recipe), overrides or ())
    if as_json:
        found = {stage.name: _values(_kept(stage.config, diff=diff)) for stage in stages}
        print_json(found if stages[0].name else found[""])
        return
    for stage in stages:
        if stage.name:
            typer.echo(f"# stage {stage.name}")
        _show(stage.config, diff=diff)


def _show(run: RunConfig, *, diff: bool) -> None:
    if diff:
        defaults = dict(configuration.leaves(RunConfig()))
        for key, value in _kept(run, diff=True).items():
            OUT.print(f"{key} = {value}   [dim]default {defaults.get(key, 'unset')}[/]", markup=True)
    elif OUT.is_terminal:
        OUT.print(Syntax(configuration.to_toml(run), "toml", background_color="default", word_wrap=True))
    else:  # for a file: a recipe, whatever the width of its lines
        typer.echo(configuration.to_toml(run), nl=False)


def _kept(run: RunConfig, *, diff: bool) -> dict[str, str]:
    defaults = dict(configuration.leaves(RunConfig()))
    return {k: v for k, v in configuration.leaves(run) if not diff or defaults.get(k) != v}


def _values(leaves: dict[str, str]) -> dict[str, object]:
    return {key: tomllib.loads(f"value = {value}")["value"] for key, value in leaves.items()}
