"""`cairn policy`: models to try things with."""

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.console import OUT, print_json, reported

app = typer.Typer(no_args_is_help=True, help="Make policies to try things with.")


@app.callback()
def policy() -> None:
    """Make policies to try things with."""


@app.command("make-tiny")
def make_tiny(
    family: Annotated[str, typer.Argument(help="qwen2.5-vl, qwen3-vl, idefics3 or llava.")],
    folder: Annotated[Path, typer.Argument(help="The directory to write.")],
    *,
    width: Annotated[int, typer.Option(min=32, help="Of the language model's states; a multiple of 32.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Of the language model and of the vision tower.")] = 2,
    image: Annotated[int, typer.Option(min=56, help="Side that screenshots are seen with, about, in pixels.")] = 112,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Make a tiny vision-language model of the real class, with random weights and all that belongs to it. Offline.

    Example: cairn policy make-tiny qwen2.5-vl tiny
    """
    with reported():
        from cairn.app.tiny import make_named

        parameters = make_named(family, folder, width=width, layers=layers, image=image, seed=seed)
        OUT.print(
            f"next: [bold]cairn train quickstart --set policy.model=path --set policy.path={folder} "
            "--set policy.codec=ui-tars[/]"
        )
        print_json({"folder": str(folder), "parameters": parameters})
