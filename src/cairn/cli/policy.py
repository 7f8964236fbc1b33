"""`cairn policy`: models to try things with, and those that runs have made."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from cairn.cli.console import OUT, print_json, reported

app = typer.Typer(no_args_is_help=True, help="Make policies to try things with, and take them out of runs.")


@app.callback()
def policy() -> None:
    """Make policies to try things with, and take them out of runs."""


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


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run's directory.")],
    out: Annotated[Path, typer.Option(help="The directory to write.")],
    *,
    checkpoint: Annotated[
        str, typer.Option(help="Which saved policy: imitate, reinforce, control or latest.")
    ] = "reinforce",
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Of the weights; auto: bfloat16, but float32 for the pixel policy."),
    ] = "auto",
) -> None:
    """Write a run's policy as a plain Hugging Face directory: weights, configuration, tokenizer or processor.

    Adapters are merged into the model that they were trained on. The pixel policy is a class of Cairn's own, and is
    loaded by that class.

    Example: cairn policy export runs/quickstart --out my-policy
    """
    with reported():
        from cairn.app.export import export as write

        exported = write(run, out, checkpoint=checkpoint, dtype=dtype)
        OUT.print(f"loads with: {exported.loads_with}", soft_wrap=True, markup=False)
        print_json(
            {
                "folder": str(exported.folder),
                "model": exported.model,
                "parameters": exported.parameters,
                "dtype": exported.dtype,
            }
        )
