"""`cairn seeds`: several runs of one recipe, together."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.table import Table

from cairn.cli.console import OUT, print_json, print_table, reported
from cairn.config.recipe import RunConfig, leaves
from cairn.errors import ConfigError
from cairn.loop.course import PROGRESS
from cairn.loop.progress import read
from cairn.loop.summary import Summary, summarise, write_csv

_FIGURES = ("heldout_bc", "heldout_rl", "heldout_control", "greedy_bc", "greedy_rl", "greedy_control")
_TITLES = ("sampled: cloning", "practice", "control", "greedy: cloning", "practice", "control")


def seeds(
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs, one for each seed.")],
    *,
    out: Annotated[Path, typer.Option(help="Where the table and the picture go: this path with .csv and .png.")] = Path(
        "seeds"
    ),
    title: Annotated[str, typer.Option(help="Of the picture.")] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="The JSON line alone.")] = False,
) -> None:
    """Put runs of several seeds side by side: a table, a CSV of every evaluation, a picture with their mean.

    Example: cairn seeds runs/a runs/b runs/c --out benchmarks/results/quickstart
    """
    with reported():
        from cairn.app.pictures import draw_together
        from cairn.app.run import config_of

        configs = [config_of(run) for run in runs]
        _check(runs, configs)
        found = [(config.seed, read(run / PROGRESS)) for run, config in zip(runs, configs, strict=True)]
        write_csv(out.with_suffix(".csv"), found)
        draw_together(
            [(run, progress) for run, (_, progress) in zip(runs, found, strict=True)],
            out.with_suffix(".png"),
            title=title or f"{len(runs)} seeds",
        )
        summaries = [summarise(progress) for _, progress in found]
        if not quiet:
            print_table(_table([seed for seed, _ in found], summaries))
            OUT.print(f"{out.with_suffix('.csv')}, {out.with_suffix('.png')}")
        means = {name: _mean(summaries, name) for name in _FIGURES}
        print_json(
            {**means, "seeds": {seed: dataclasses.asdict(s) for (seed, _), s in zip(found, summaries, strict=True)}}
        )


def _check(runs: Sequence[Path], configs: Sequence[RunConfig]) -> None:
    """One recipe, and no seed twice: anything else has no mean."""
    seen: dict[int, Path] = {}
    first = {key: value for key, value in leaves(configs[0]) if key != "seed"}
    for run, config in zip(runs, configs, strict=True):
        if config.seed in seen:
            raise ConfigError(f"{seen[config.seed]} and {run} have the same seed, {config.seed}")
        seen[config.seed] = run
        for key, value in leaves(config):
            if key != "seed" and first.get(key) != value:
                raise ConfigError(f"{run} has {key} = {value}, and {runs[0]} has {first.get(key, 'it unset')}")


def _mean(summaries: Sequence[Summary], name: str) -> float | None:
    """The mean of a figure; None where a run lacks it."""
    known = [value for value in (getattr(summary, name) for summary in summaries) if value is not None]
    return fmean(known) if known and len(known) == len(summaries) else None


def _table(numbers: Sequence[int], summaries: Sequence[Summary]) -> Table:
    table = Table("seed", *_TITLES, title="held-out success, %", title_justify="left")
    for number, summary in zip(numbers, summaries, strict=True):
        table.add_row(str(number), *(_percent(getattr(summary, name)) for name in _FIGURES))
    table.add_section()
    table.add_row("mean", *(f"[bold]{_percent(_mean(summaries, name))}[/]" for name in _FIGURES))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
