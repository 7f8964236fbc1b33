"""`cairn demo`: what the scripted experts show."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.console import ERR, OUT, print_json, reported
from cairn.cli.recipes import find
from cairn.cli.running import STOPPED, run_async
from cairn.config.stages import load_stages
from cairn.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Collect demonstrations.")


@app.command()
def collect(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or the path of a .toml file.")],
    *,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the recipe; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's directory; default: a new one under runs/.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="The JSON line alone.")] = False,
) -> None:
    """Let the experts play a recipe's training tasks, and store every turn as the recipe's policy would answer.

    A failed expert is reported by task. `cairn train RECIPE --out DIR --resume` trains on them.

    Example: cairn demo collect quickstart --set demonstrations.per_template=5
    """
    with reported():
        config, *more = [stage.config for stage in load_stages(find(recipe), overrides or ())]
        if more:
            raise ConfigError(f"{recipe} has stages: cairn train {recipe} shows each of them what it imitates")
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        folder = out or Path("runs") / f"demo-{stamp}"
        from cairn.app.run import collect_demonstrations

        onward = f"cairn train {recipe} --out {folder} --resume"
        try:
            shown = run_async(collect_demonstrations(config, folder))
        except KeyboardInterrupt:
            ERR.print(f"stopped; let the experts finish, and train on what they show, with: {onward}", soft_wrap=True)
            raise typer.Exit(STOPPED) from None
        if not quiet:
            OUT.print(f"next: [bold]{onward}[/]")
        print_json({"run": str(folder), **shown})
