"""`cairn bench learner` and `update-memory`: what it saves to compute tokens once, and layers twice."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.console import ERR, print_table, reported


class Only(StrEnum):
    """Kinds of batches."""

    TEXT = "text"
    VISION = "vision"


def learner(
    *,
    model: Annotated[Path | None, typer.Option(help="A text model's directory; default: SmolLM2-135M.")] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Of everything, the sides in turn.")] = 3,
    answers: Annotated[int, typer.Option(min=1)] = 8,
    answer_tokens: Annotated[int, typer.Option(min=1)] = 40,
    prompt_tokens: Annotated[int, typer.Option(min=1)] = 1024,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    only: Annotated[Only | None, typer.Option(help="One kind of batch alone; default: both.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Cairn alone, without TRL.")] = False,
    python: Annotated[
        Path | None,
        typer.Option(help="A Python that has TRL; default: that of `scripts/bench-setup --trl`."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No table: the JSON line alone.")] = False,
) -> None:
    """Optimiser steps on siblings of one prompt: as a token tree, flat, and by TRL's GRPOTrainer.

    Text by SmolLM2, and a screenshot by a vision-language model with random weights (without TRL).

    Example: cairn bench learner --repetitions 5
    """
    with reported():
        from cairn.bench.competitors import bench_python
        from cairn.bench.learner import (
            SEEING_SIZE,
            LearnerBenchOptions,
            bench_learner,
            learner_json,
            learner_table,
        )
        from cairn.models.smollm2 import ensure_smollm2

        options = LearnerBenchOptions(
            model=None if only is Only.VISION else model or ensure_smollm2(),
            seeing=None if only is Only.TEXT else SEEING_SIZE,
            python=None if alone or only is Only.VISION else python or bench_python(),
            repetitions=repetitions,
            answers=answers,
            answer_tokens=answer_tokens,
            prompt_tokens=prompt_tokens,
            threads=threads,
        )
        with ERR.status("measuring") as status:
            found = bench_learner(options, progress=status.update)
        if not quiet:
            print_table(learner_table(found))
        typer.echo(learner_json(found))


def update_memory(
    *,
    width: Annotated[int, typer.Option(min=64, help="Of the model's states; a multiple of 64.")] = 512,
    layers: Annotated[int, typer.Option(min=1)] = 12,
    vocabulary: Annotated[int, typer.Option(min=200)] = 8192,
    answers: Annotated[int, typer.Option(min=1)] = 8,
    answer_tokens: Annotated[int, typer.Option(min=1)] = 40,
    prompt_tokens: Annotated[int, typer.Option(min=1)] = 1024,
    repetitions: Annotated[int, typer.Option(min=1, help="Of every way, after one that is not counted.")] = 3,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    quiet: Annotated[bool, typer.Option("--quiet", help="No table: the JSON line alone.")] = False,
) -> None:
    """Memory and time of an update on CPU: all weights or adapters, layers kept or not, moments whole or not.

    Example: cairn bench update-memory --width 768
    """
    with reported():
        from cairn.bench.update_memory import UpdateShape, bench_updates, updates_json, updates_table
        from cairn.models.loading import require_peft

        require_peft()
        shape = UpdateShape(
            width=width,
            layers=layers,
            vocabulary=vocabulary,
            prompt_tokens=prompt_tokens,
            answers=answers,
            answer_tokens=answer_tokens,
            repetitions=repetitions,
            threads=threads,
        )
        with ERR.status("measuring") as status:
            found = bench_updates(shape, progress=status.update)
        if not quiet:
            print_table(updates_table(found))
        typer.echo(updates_json(found))
