"""`cairn judge`: how far a judge can be trusted in the place of a checker."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cairn.cli.console import OUT, print_json, print_table, reported
from cairn.cli.running import run_async

if TYPE_CHECKING:
    from cairn.app.judging import Comparison

_SHOWN = 10  # disagreements


def judge(
    run: Annotated[Path, typer.Argument(help="A run's directory; what the judge says is kept there.")],
    *,
    url: Annotated[str | None, typer.Option(help="Of an OpenAI-compatible endpoint, up to and with /v1.")] = None,
    model: Annotated[str, typer.Option(help="As the endpoint calls it.")] = "",
    key_variable: Annotated[str, typer.Option(help="Variable with the endpoint's key.")] = "OPENAI_API_KEY",
    prompt: Annotated[Path | None, typer.Option(help="A TOML file in the place of the shipped prompt.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Count common words; ask nobody.")] = False,
    least: Annotated[float, typer.Option(min=0.0, max=1.0, help="The score of a success.")] = 0.5,
    limit: Annotated[int | None, typer.Option(min=1, help="Episodes at most.")] = None,
) -> None:
    """Judge a run's episodes and compare the verdicts with the environment's own.

    Without --url and --offline, the judge is that of the run's recipe. Nothing of the run is changed. The last line is
    JSON.

    Example: cairn judge runs/quickstart --url http://localhost:8000/v1 --model qwen3-8b --limit 100
    """
    with reported():
        from cairn.app.judging import JudgeRequest, compare
        from cairn.app.run import config_of
        from cairn.config.recipe import judge_options

        own = url is not None or offline
        options = (
            judge_options(url=url, model=model, key_variable=key_variable, offline=offline)
            if own
            else config_of(run).reward.judge
        )
        if prompt is not None:
            options = options.model_copy(update={"task_prompt": str(prompt)})
        found = run_async(compare(JudgeRequest(folder=run, judge=options, least=least, limit=limit)))
    _show(found)


def _show(found: "Comparison") -> None:
    counts, accuracy = found.agreement, found.agreement.accuracy
    table = Table("", "checker: solved", "checker: not")
    table.add_row("judge: solved", str(counts.both), str(counts.judge_alone))
    table.add_row("judge: not", str(counts.checker_alone), str(counts.neither))
    print_table(table)
    for one in found.disagreements[:_SHOWN]:
        OUT.print(f"{one.group}, sibling {one.sibling}: {one.score:.2f}, {one.reason}", markup=False)
    OUT.print(
        f"they agree on {accuracy.mean:.1%} ({accuracy.low:.1%} to {accuracy.high:.1%}); kappa {counts.kappa:.2f}"
    )
    print_json(
        {
            "episodes": counts.count,
            "failed": found.failed,
            "accuracy": accuracy.mean,
            "accuracy_low": accuracy.low,
            "accuracy_high": accuracy.high,
            "kappa": counts.kappa,
            "precision": counts.precision,
            "recall": counts.recall,
            "both": counts.both,
            "judge_alone": counts.judge_alone,
            "checker_alone": counts.checker_alone,
            "neither": counts.neither,
        }
    )
