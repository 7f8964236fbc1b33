"""`cairn data`: sets of recorded states, to learn from without an environment."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cairn.cli.console import ERR, OUT, print_json, print_table, reported
from cairn.cli.recipes import find
from cairn.cli.running import run_async
from cairn.config import recipe as configuration
from cairn.data.recorded import Grid, RecordFormat
from cairn.errors import ConfigError

if TYPE_CHECKING:
    from cairn.app.recovery import Recovered

app = typer.Typer(no_args_is_help=True, help="Make sets of recorded states, and look at them.")

Out = Annotated[Path, typer.Option(help="The directory of the new set.")]
HeldOut = Annotated[float, typer.Option(min=0, max=1, help="Share of the tasks of each kind that is held out.")]
Seed = Annotated[int, typer.Option(min=0, help="Decides which tasks are held out.")]


@app.command()
def record(
    run: Annotated[Path, typer.Argument(help="A run's directory.")],
    *,
    out: Out,
    experts: Annotated[
        bool, typer.Option("--experts", help="Demonstrations alone, not the policy's successes.")
    ] = False,
    held_out: HeldOut = 0.1,
    seed: Seed = 0,
) -> None:
    """Record every turn of a run's successes at training tasks.

    Example: cairn data record runs/quickstart --out sets/quickstart
    """
    with reported():
        from cairn.app.datasets import dividing, record_run

        made = record_run(run, out, division=dividing(held_out, seed), experts_only=experts)
        _print_made(out, states=made.states, tasks=made.tasks, held_out=made.held_out_states)


@app.command()
def collect(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or the path of a .toml file.")],
    *,
    out: Out,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Of the recipe's environment; repeatable. Default: the recipe's.")
    ] = None,
    per_template: Annotated[int | None, typer.Option(min=1, help="Training tasks of each that are played.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the recipe; repeatable.")
    ] = None,
    held_out: HeldOut = 0.1,
    seed: Seed = 0,
) -> None:
    """Let experts play, and record every turn as the recipe's policy would answer.

    Example: cairn data collect quickstart --task login-user --task click-tab --per-template 20 --out sets/forms
    """
    with reported():
        from cairn.app.datasets import collect_recorded, dividing

        names = [f"environment.templates={json.dumps(task)}"] if task else []
        count = [] if per_template is None else [f"demonstrations.per_template={per_template}"]
        config = configuration.load(find(recipe), [*(overrides or ()), *names, *count])
        with ERR.status("experts play"):
            made = run_async(collect_recorded(config, out, division=dividing(held_out, seed)))
        _print_made(out, states=made.states, tasks=made.tasks, held_out=made.held_out_states)


@app.command("import")
def import_(
    format_: Annotated[RecordFormat, typer.Argument(metavar="FORMAT", help=", ".join(RecordFormat))],
    path: Annotated[Path, typer.Argument(help="Its file, or the folder with its files.")],
    *,
    out: Out,
    held_out: HeldOut = 0.1,
    seed: Seed = 0,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Leave damaged rows out and count them; else the first one is an error."),
    ] = False,
    grid: Annotated[Grid, typer.Option(help="What the numbers of a place count, in llava.")] = Grid.AUTO,
) -> None:
    """Read a public data set. Damaged rows are named with their file and line.

    Example: cairn data import screenspot-v2 ScreenSpot-v2 --out sets/screenspot --held-out 1
    """
    with reported():
        from cairn.app.datasets import ImportRequest, dividing, import_set

        request = ImportRequest(
            format=format_,
            path=path,
            out=out,
            division=dividing(held_out, seed),
            skip_damaged=skip_damaged,
            grid=grid,
        )
        with ERR.status("reading"):
            imported = import_set(request)
        for row in imported.damaged[:_TOLD]:
            ERR.print(f"left out: {row}", soft_wrap=True, markup=False)
        if len(imported.damaged) > _TOLD:
            ERR.print(f"and {len(imported.damaged) - _TOLD} more")
        made = imported.manifest
        _print_made(
            out,
            states=made.states,
            tasks=made.tasks,
            held_out=made.held_out_states,
            damaged=len(imported.damaged),
        )


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="The directory of a set.")],
) -> None:
    """Show what a set holds: states, tasks, steps and actions by template; the last line is JSON.

    Example: cairn data show sets/quickstart
    """
    with reported():
        from cairn.app.datasets import describe_set

        manifest, rows = describe_set(folder)
    table = Table("template", "tasks", "states", "held out", "steps", "what the expert did", title=manifest.origin)
    for row in rows:
        kinds = ", ".join(f"{kind} {count}" for kind, count in row.kinds)
        table.add_row(row.template, str(row.tasks), str(row.states), str(row.held_out), f"{row.steps:.1f}", kinds)
    print_table(table)
    sources, actions = Counter[str](), Counter[str]()
    for row in rows:
        sources[row.source] += row.states
        actions.update(dict(row.kinds))
    ways = sum(row.states / row.steps for row in rows)
    print_json(
        {
            "states": manifest.states,
            "tasks": manifest.tasks,
            "held_out_states": manifest.held_out_states,
            "held_out_tasks": manifest.held_out_tasks,
            "sources": dict(sources),
            "actions": dict(actions.most_common()),
            "mean_steps": manifest.states / ways,
        }
    )


@app.command()
def select(
    folder: Annotated[Path, typer.Argument(help="The directory of a set.")],
    *,
    rule: Annotated[
        str,
        typer.Option(
            help="ui-r1: what it gets wrong, of every action; gui-r1: neither all right nor all wrong; "
            "bottleneck: wrong with the goal, right with the step's own goal."
        ),
    ],
    policy: Annotated[Path, typer.Option(help="The run whose policy is asked.")],
    out: Out,
    checkpoint: Annotated[str, typer.Option(help="Which saved policy of that run.")] = "latest",
    answers: Annotated[
        int | None, typer.Option(min=1, help="At each state; default: 10 for gui-r1, else a greedy one.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="States to keep, of ui-r1; default: 136.")] = None,
) -> None:
    """Keep the training states that are worth learning at, by what a policy answers there, and all held-out ones.

    Example: cairn data select sets/all --rule gui-r1 --policy runs/base --out sets/undecided
    """
    with reported():
        from cairn.app.run import config_of, saved_policy
        from cairn.app.selection import Rule, SelectRequest
        from cairn.app.selection import select as select_states

        if rule not in set(Rule):
            raise ConfigError(f"there is no rule {rule!r}; there are: {', '.join(Rule)}")
        request = SelectRequest(
            folder=folder,
            rule=Rule(rule),
            config=config_of(policy),
            saved=saved_policy(policy, checkpoint),
            out=out,
            answers=answers,
            size=size,
        )
        with ERR.status("asking") as status:
            chosen = run_async(
                select_states(request, progress=lambda done, whole: status.update(f"asked at {done} of {whole} states"))
            )
        made, figures = chosen.manifest, {"asked": chosen.asked, "kept": chosen.kept, "right": chosen.right}
        _print_made(out, states=made.states, tasks=made.tasks, held_out=made.held_out_states, **figures)


@app.command()
def recover(
    folder: Annotated[Path, typer.Argument(help="The directory of a set that experts or a run made.")],
    *,
    policy: Annotated[Path, typer.Option(help="The run whose policy makes the mistakes.")],
    out: Out,
    checkpoint: Annotated[str, typer.Option(help="Which saved policy of that run.")] = "latest",
    answers: Annotated[int, typer.Option(min=2, help="Sampled at each state.")] = 8,
    per_state: Annotated[int, typer.Option(min=1, help="Different mistakes that are tried at each state.")] = 2,
    escapes: Annotated[int, typer.Option(min=1, help="Ways back that are tried for each mistake.")] = 8,
    store: Annotated[str, typer.Option(help="How states are saved: auto, criu, podman, native or replay.")] = "auto",
    alone: Annotated[bool, typer.Option("--alone", help="Leave out the states that the mistakes are made at.")] = False,
) -> None:
    """Add states after a policy's own mistakes, with the way back from each: error recovery (InfiGUI-R1).

    Each mistake is made and undone in the environment, from a snapshot; what cannot be undone is counted by reason.

    Example: cairn data recover sets/forms --policy runs/base --out sets/recovery
    """
    with reported():
        from cairn.app.recovery import RecoverRequest
        from cairn.app.recovery import recover as recover_states
        from cairn.app.run import config_of, saved_policy

        request = RecoverRequest(
            folder=folder,
            config=config_of(policy),
            saved=saved_policy(policy, checkpoint),
            out=out,
            answers=answers,
            per_state=per_state,
            escapes=escapes,
            store=store,
            alone=alone,
        )
        with ERR.status("asking") as status:
            found = run_async(
                recover_states(request, progress=lambda part, done, whole: status.update(f"{part}: {done} of {whole}"))
            )
        _print_recovered(out, found)


def _print_recovered(out: Path, found: "Recovered") -> None:
    for way in found.lost_ways[:_TOLD]:
        ERR.print(f"left out: {way}", soft_wrap=True, markup=False)
    made = found.manifest
    print_json(
        {
            "set": str(out),
            "states": made.states,
            "tasks": made.tasks,
            "held_out": made.held_out_states,
            "asked": found.asked,
            "hesitant": found.hesitant,
            "mistakes": found.mistakes,
            "scenarios": found.scenarios,
            "held_out_scenarios": found.held_out,
            "rejected": dict(found.rejected),
            "lost_ways": len(found.lost_ways),
        }
    )


@app.command()
def distil(
    folder: Annotated[Path, typer.Argument(help="The directory of a set.")],
    *,
    out: Out,
    url: Annotated[
        str | None, typer.Option(help="Of the teacher's OpenAI-compatible endpoint, up to and with /v1.")
    ] = None,
    model: Annotated[str, typer.Option(help="The teacher, as the endpoint calls it.")] = "",
    key_variable: Annotated[str, typer.Option(help="The environment variable with its key.")] = "OPENAI_API_KEY",
    prompt: Annotated[Path | None, typer.Option(help="A TOML file in the place of the shipped prompt.")] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask nobody: a double reads the recorded step aloud. For trying a recipe.")
    ] = False,
) -> None:
    """Let a teacher think aloud at every training state, and keep those where its action is the recorded one.

    It is shown elements with their boxes, as text. Policies whose answers have thoughts then imitate the teacher's.

    Example: cairn data distil sets/forms --url http://127.0.0.1:8000/v1 --model qwq-32b --out sets/thoughts
    """
    with reported():
        from cairn.app.distillation import TeacherOptions, build_teacher
        from cairn.app.distillation import distil as distil_states

        if offline == (url is not None):
            raise ConfigError("give the teacher's --url and --model, or --offline")
        teacher = build_teacher(TeacherOptions(url=url, model=model, key_variable=key_variable, prompt=prompt))
        with ERR.status("asking the teacher") as status:
            made = run_async(
                distil_states(
                    folder,
                    out,
                    teacher=teacher,
                    progress=lambda done, whole: status.update(f"asked the teacher at {done} of {whole} states"),
                )
            )
        manifest = made.manifest
        print_json(
            {
                "set": str(out),
                "states": manifest.states,
                "tasks": manifest.tasks,
                "held_out": manifest.held_out_states,
                "asked": made.asked,
                "kept": made.kept,
                "dropped": dict(made.dropped),
            }
        )


_TOLD = 20  # damaged rows that are named one by one


def _print_made(out: Path, **figures: float) -> None:
    OUT.print(f"next: [bold]cairn data show {out}[/]")
    print_json({"set": str(out), **figures})
