"""`cairn train`, `cairn eval`, `cairn demo`: a recipe's run, and what came of it."""

import dataclasses
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from cairn.algo.statistics import Interval
from cairn.cli.console import ERR, OUT, print_json, print_table, reported
from cairn.cli.progress import ProgressSink
from cairn.cli.recipes import find
from cairn.cli.running import STOPPED, run_async
from cairn.config import recipe as configuration
from cairn.config.stages import load_stages
from cairn.data.task import Split
from cairn.errors import BoundaryError, CircuitOpenError, ConfigError, RankError
from cairn.evaluate.report import EvaluationReport
from cairn.loop.progress import Measured, Phase, Progress
from cairn.loop.summary import summarise, write_csv

if TYPE_CHECKING:
    from cairn.app.ranks import Company
    from cairn.app.stages import Place

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the recipe; repeatable.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, no tables: the JSON line alone.")]


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or the path of a .toml file.")],
    *,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="The run's directory; default: a new one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    control: Annotated[
        bool, typer.Option("--control", help="Afterwards, train the control: imitation for as long as RL took.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Everything once and small, in a minute or so: does the recipe run here?")
    ] = False,
    ranks: Annotated[
        int, typer.Option(min=1, help="Processes of this machine that are one learner, each with a GPU (FSDP2).")
    ] = 1,
    quiet: Quiet = False,
) -> None:
    """Train a policy: demonstrations, imitation, reinforcement, and an evaluation on held-out tasks at every end.

    Stages of a recipe run one after the other. Ctrl-C saves; --resume goes on. The last line is JSON.

    Examples: cairn train quickstart --control

    cairn train quickstart --set reinforcement.minutes=3 --set seed=1

    torchrun --nproc-per-node 8 --no-python cairn train my.toml
    """
    with reported():
        from cairn.app.ranks import Company, follow_run, follows

        if follows():
            follow_run()
            return
        folder = _folder(recipe, out, resume=resume)
        places = _places(recipe, folder, overrides or [], resume=resume, smoke=smoke, control=control)
        with _resumable(recipe, folder), Company.of(ranks) as company:
            finished = [
                _finish(place, company, recipe, resume=resume, control=control, tensorboard=tensorboard, quiet=quiet)
                for place in places
            ]
        if not quiet:
            OUT.print(f"next: [bold]cairn eval {folder}[/]  (evaluates the saved policy again)")
        print_json({"stages": finished, "run": str(folder)} if "stage" in finished[0] else finished[0])


@contextmanager
def _resumable(recipe: str, folder: Path) -> Generator[None]:
    """Say how to go on with a run that is stopped, or that something outside of this process has broken."""
    onward = f"go on with: cairn train {recipe} --out {folder} --resume"
    try:
        yield
    except KeyboardInterrupt:
        ERR.print(f"stopped and saved; {onward}", soft_wrap=True)
        raise typer.Exit(STOPPED) from None
    except (BoundaryError, CircuitOpenError, RankError) as error:
        raise type(error)(f"{error}\nonce that is mended, {onward}") from error


def _places(
    recipe: str, folder: Path, overrides: list[str], *, resume: bool, smoke: bool, control: bool
) -> "Sequence[Place]":
    places = _laid_out(recipe, folder, overrides, resume=resume, smoke=smoke)
    if control and len(places) > 1:
        raise ConfigError("--control belongs to recipes without stages: there is no imitation that it could go on with")
    return places


def _laid_out(recipe: str, folder: Path, overrides: list[str], *, resume: bool, smoke: bool) -> "Sequence[Place]":
    from cairn.app.stages import found, lay_out

    if not resume:
        return lay_out(load_stages(find(recipe), overrides, smoke=smoke), folder)
    if overrides or smoke:
        raise ConfigError(f"a resumed run keeps its recipe: {'--set' if overrides else '--smoke'} cannot change it")
    places = found(folder)
    ERR.print(f"going on with the recipe of the run in {folder}", soft_wrap=True)
    return places


def _finish(
    place: "Place",
    company: "Company",
    recipe: str,
    *,
    resume: bool,
    control: bool,
    tensorboard: bool,
    quiet: bool,
) -> Mapping[str, object]:
    """One run to its end; its line of figures."""
    if place.name and not quiet:
        ERR.print(f"[bold]stage {place.name}[/]")
    progress = _train(place, company, resume=resume, control=control, tensorboard=tensorboard, quiet=quiet)
    return _report(place, progress, title=recipe, quiet=quiet)


def _train(
    place: "Place", company: "Company", *, resume: bool, control: bool, tensorboard: bool, quiet: bool
) -> Progress:
    from cairn.app.run import TrainRequest
    from cairn.app.stages import train_in

    with _shown(quiet=quiet) as sinks:
        request = TrainRequest(
            config=place.config,
            folder=place.folder,
            resume=resume,
            control=control,
            tensorboard=tensorboard,
            sinks=sinks,
            company=company,
        )
        return run_async(train_in(place, request))


def _report(place: "Place", progress: Progress, *, title: str, quiet: bool) -> Mapping[str, object]:
    """Pictures and tables of one run; its line of figures."""
    from cairn.app.pictures import draw, draw_starts

    folder, seed = place.folder, place.config.seed
    title = f"{title}{f', {place.name}' if place.name else ''}, seed {seed}"
    curve = draw(folder, progress, title=title)
    starts = draw_starts(folder, progress.scheduler, title=title)
    write_csv(folder / "evaluations.csv", [(seed, progress)])
    if not quiet:
        print_table(_table(progress))
        OUT.print(f"curve: {curve}\npolicy: {folder / 'checkpoints' / Phase.REINFORCE}")
        if starts is not None:
            OUT.print(f"where rollouts started: {starts}")
    figures = {**dataclasses.asdict(summarise(progress)), "run": str(folder)}
    return {"stage": place.name, **figures} if place.name else figures


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's directory; of one with stages, the last stage.")],
    *,
    checkpoint: Annotated[
        str, typer.Option(help="Which saved policy: imitate, reinforce, control or latest.")
    ] = "reinforce",
    split: Annotated[Split, typer.Option(help="Which tasks.")] = Split.HELD_OUT,
    per_template: Annotated[
        int | None, typer.Option(min=1, help="Tasks of each template; default: as many as the run.")
    ] = None,
    tries: Annotated[int | None, typer.Option(min=1, help="Sampled tries of each task, for Avg@k and Pass@k.")] = None,
    budgets: Annotated[
        list[int] | None,
        typer.Option("--budget", min=1, help="Turns within which success is told; repeatable. Default: the recipe's."),
    ] = None,
    on: Annotated[
        Path | None, typer.Option(help="Ask at the recorded states of this set, as `cairn data` makes it, instead.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate a saved policy: Avg@k and Pass@k with 95 % intervals, sampled and greedy, by task.

    Example: cairn eval runs/quickstart --per-template 100 --tries 4

    cairn eval runs/quickstart --on sets/screenspot
    """
    with reported():
        from cairn.app.run import EvaluateRequest, config_of, saved_policy
        from cairn.app.run import evaluate as run_evaluation
        from cairn.app.stages import last_run

        run = last_run(run)
        config = config_of(run) if on is None else configuration.answering(config_of(run), on)
        if budgets:
            config = configuration.within(config, budgets)
        request = EvaluateRequest(
            config=config,
            saved=saved_policy(run, checkpoint),
            split=split,
            per_template=per_template or config.evaluation.per_template,
            tries=tries or config.evaluation.tries,
        )
        with ERR.status("playing"):
            sampled, greedy = run_async(run_evaluation(request))
        if not quiet:
            _print_reports(sampled, greedy)
        print_json({"sampled": _figures(sampled), "greedy": _figures(greedy)})


def _print_reports(sampled: EvaluationReport, greedy: EvaluationReport) -> None:
    print_table(_scores(sampled, greedy))
    if sampled.kinds:
        print_table(_kinds(sampled, greedy))
    if sampled.budgets:
        print_table(_budgets(sampled, greedy))


def _folder(recipe: str, out: Path | None, *, resume: bool) -> Path:
    if resume and out is None:
        raise ConfigError("--resume needs --out with the directory of the run to go on with")
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return out or Path("runs") / f"{Path(recipe).stem}-{stamp}"


@contextmanager
def _shown(*, quiet: bool) -> Generator[list[ProgressSink]]:
    if quiet:
        yield []
        return
    sink = ProgressSink(ERR)
    try:
        yield [sink]
    finally:
        sink.close()


_TITLES = {
    Phase.IMITATE: "behaviour cloning",
    Phase.REINFORCE: "reinforcement learning",
    Phase.CONTROL: "more behaviour cloning, equal time",
}


def _table(progress: Progress) -> Table:
    """Held-out success by task at the end of every phase, sampled / greedy."""
    phases = [p for p in _TITLES if progress.final(p, greedy=False)]
    table = Table("held-out success, %", *(_TITLES[p] for p in phases), title="sampled / greedy", title_justify="left")
    columns = [(progress.final(p, greedy=False), progress.final(p, greedy=True)) for p in phases]
    names = list(columns[0][0].by_template) if columns and columns[0][0] else []
    for name in names:
        table.add_row(name.partition("/")[2], *(_pair(s, g, name) for s, g in columns))
    kinds = list(columns[0][0].by_kind) if columns and columns[0][0] else []
    if kinds:
        table.add_section()
    for kind in kinds:
        table.add_row(f"where the expert did {kind}", *(_kind_pair(s, g, kind) for s, g in columns))
    for turns in columns[0][0].by_budget if columns and columns[0][0] else ():
        table.add_row(f"within {turns} turns", *(_budget_pair(s, g, turns) for s, g in columns))
    table.add_section()
    table.add_row("all", *(f"[bold]{_all(s)} / {_all(g)}[/]" for s, g in columns))
    table.add_row("mean reward", *(f"{_of(s, 'reward')} / {_of(g, 'reward')}" for s, g in columns))
    table.add_row("tokens in an answer", *(f"{_of(s, 'tokens')} / {_of(g, 'tokens')}" for s, g in columns))
    return table


def _pair(sampled: Measured | None, greedy: Measured | None, name: str) -> str:
    return " / ".join(f"{100 * m.by_template[name]:.0f}" if m else "-" for m in (sampled, greedy))


def _kind_pair(sampled: Measured | None, greedy: Measured | None, kind: str) -> str:
    return " / ".join(f"{100 * m.by_kind[kind]:.0f}" if m else "-" for m in (sampled, greedy))


def _budget_pair(sampled: Measured | None, greedy: Measured | None, turns: int) -> str:
    return " / ".join(f"{100 * m.by_budget[turns]:.0f}" if m else "-" for m in (sampled, greedy))


def _of(measured: Measured | None, what: Literal["reward", "tokens"]) -> str:
    if measured is None:
        return "-"
    return f"{measured.reward:.3f}" if what == "reward" else f"{measured.answer_tokens:.1f}"


def _all(measured: Measured | None) -> str:
    return f"{100 * measured.mean:.1f}" if measured else "-"


def _scores(sampled: EvaluationReport, greedy: EvaluationReport) -> Table:
    table = Table(
        "task", f"Avg@{sampled.tries}, %", f"Pass@{sampled.tries}, %", "greedy, %", "format errors", "lost outside"
    )
    for own, best in zip(sampled.scores, greedy.scores, strict=True):
        solved = sum(t.solved > 0 for t in own.tasks)
        table.add_row(
            own.template.partition("/")[2],
            f"{100 * own.success:.1f}",
            f"{100 * solved / len(own.tasks):.1f}",
            f"{100 * best.success:.1f}",
            str(own.format_errors + best.format_errors),
            str(own.lost + best.lost),
        )
    table.add_section()
    table.add_row(
        "all, with 95 % interval",
        _interval(sampled.success),
        _interval(sampled.pass_at(sampled.tries)),
        _interval(greedy.success),
        str(sum(s.format_errors for r in (sampled, greedy) for s in r.scores)),
        str(sampled.lost + greedy.lost),
    )
    return table


def _kinds(sampled: EvaluationReport, greedy: EvaluationReport) -> Table:
    """Accuracy by what the expert did, with 95 % intervals."""
    table = Table("expert's action", "states", "sampled, %", "greedy, %", "mean reward, sampled / greedy")
    for own, best in zip(sampled.kinds, greedy.kinds, strict=True):
        table.add_row(
            own.kind,
            str(own.states),
            _interval(own.accuracy),
            _interval(best.accuracy),
            f"{own.reward:.3f} / {best.reward:.3f}",
        )
    return table


def _budgets(sampled: EvaluationReport, greedy: EvaluationReport) -> Table:
    """Success within so many turns, with 95 % intervals."""
    table = Table("turns at most", "sampled, %", "greedy, %")
    for own, best in zip(sampled.budgets, greedy.budgets, strict=True):
        table.add_row(str(own.turns), _interval(own.success), _interval(best.success))
    return table


def _interval(value: Interval) -> str:
    return f"[bold]{100 * value.mean:.1f}[/] {100 * value.low:.1f}-{100 * value.high:.1f}"


def _figures(report: EvaluationReport) -> dict[str, object]:
    success, passed = report.success, report.pass_at(report.tries)
    return {
        "split": report.split,
        "episodes": report.episodes,
        "lost": report.lost,
        f"avg@{report.tries}": success.mean,
        f"pass@{report.tries}": passed.mean,
        "low": success.low,
        "high": success.high,
        "reward": report.reward,
        "answer_tokens": report.answer_tokens,
        **({"kinds": {k.kind: k.accuracy for k in report.kinds}} if report.kinds else {}),
        **({"budgets": {b.turns: b.success for b in report.budgets}} if report.budgets else {}),
    }
