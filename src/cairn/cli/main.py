"""The command line. Heavy libraries are imported inside the commands that need them, so that help is instant."""

from typing import Annotated

import typer

import cairn
from cairn.cli import bench, clean, config, data, demo, doctor, env, judge, ledger, seeds, snapshot, train

app = typer.Typer(
    name="cairn",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train GUI agents by reinforcement learning in real environments.\n\n"
    "Start with [bold]cairn doctor[/], then [bold]cairn train quickstart[/].",
)
app.command()(doctor.doctor)
app.command()(train.train)
app.command("eval")(train.evaluate)
app.command()(ledger.ledger)
app.command()(judge.judge)
app.command()(clean.clean)
app.command()(seeds.seeds)
app.add_typer(demo.app, name="demo")
app.add_typer(data.app, name="data")
app.add_typer(config.app, name="config")
app.add_typer(env.app, name="env")
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def root(*, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Options of the program itself."""
    if version:
        typer.echo(cairn.__version__)
        raise typer.Exit


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
