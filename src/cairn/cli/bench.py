"""`cairn bench`: how fast it is, whether it judges as others do, and what it survives."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.bench_efficiency import efficiency
from cairn.cli.bench_learner import learner, update_memory
from cairn.cli.console import ERR, OUT, print_json, print_table, reported
from cairn.cli.recipes import find
from cairn.cli.running import run_async
from cairn.config import recipe as configuration

app = typer.Typer(no_args_is_help=True, help="Measure this machine. The last line of every command is JSON.")

Quiet = Annotated[bool, typer.Option("--quiet", help="No table: the JSON line alone.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the recipe; repeatable.")
]
Python = Annotated[
    Path | None, typer.Option(help="Python of the competitors' virtual environment; default: scripts/bench-setup's.")
]


app.command()(efficiency)
app.command()(learner)
app.command("update-memory")(update_memory)


@app.command()
def env(
    *,
    repetitions: Annotated[int, typer.Option(min=1, help="Of everything, interleaved.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each measurement.")] = 6.0,
    sessions: Annotated[list[int] | None, typer.Option(min=1, help="Cairn's sessions at once; repeatable.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Cairn alone, without the other environments.")] = False,
    python: Python = None,
    quiet: Quiet = False,
) -> None:
    """Steps per second with screenshot: Cairn, miniwob's own Selenium environment and BrowserGym, same actions.

    The others live in a virtual environment of their own: scripts/bench-setup makes it.

    Example: cairn bench env --repetitions 5
    """
    from cairn.bench.environment import EnvBenchOptions, bench_environment
    from cairn.bench.environment_report import env_json, env_table

    options = EnvBenchOptions(
        repetitions=repetitions,
        seconds=seconds,
        sessions=tuple(sessions) if sessions else EnvBenchOptions().sessions,
        against=() if alone else EnvBenchOptions().against,
        python=python,
    )
    with reported():
        with ERR.status("measuring") as status:
            result = run_async(bench_environment(options, progress=status.update))
        if not quiet:
            print_table(env_table(result))
        typer.echo(env_json(result))


@app.command()
def rollout(
    *,
    run: Annotated[
        Path | None, typer.Option(help="A run whose trained policy plays; default: an untrained one.")
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="Where policy and environment are described, without --run.")
    ] = "quickstart",
    overrides: Overrides = None,
    concurrent: Annotated[list[int] | None, typer.Option(min=1, help="Episodes at once; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each number of episodes.")] = 8.0,
    quiet: Quiet = False,
) -> None:
    """Turns per second with the policy in the loop, where the time goes, and what shared prefill saves.

    Example: cairn bench rollout --run runs/quickstart --concurrent 8
    """
    with reported():
        from cairn.app.run import config_of, saved_policy
        from cairn.bench.rollout import RolloutBenchOptions, bench_rollout, rollout_json, rollout_table

        options = RolloutBenchOptions(
            config=config_of(run) if run else configuration.load(find(recipe), overrides or ()),
            saved=saved_policy(run, "latest") if run else None,
            concurrency=tuple(concurrent) if concurrent else RolloutBenchOptions().concurrency,
            seconds=seconds,
        )
        with ERR.status("measuring") as status:
            result = run_async(bench_rollout(options, progress=status.update))
        if not quiet:
            print_table(rollout_table(result))
        typer.echo(rollout_json(result))


@app.command()
def restore(
    *,
    steps: Annotated[int, typer.Option(min=0, help="From the root to the state.")] = 10,
    branches: Annotated[int, typer.Option(min=1, max=32, help="Sessions of one state to open at once.")] = 8,
    repetitions: Annotated[int, typer.Option(min=1, help="Of everything, the stores in turn.")] = 5,
    quiet: Quiet = False,
) -> None:
    """What it costs to come back to a state: every snapshot store against replay.

    Example: cairn bench restore --steps 10 --branches 8
    """
    from cairn.bench.restore import RestoreBenchOptions, bench_restore, restore_json, restore_table

    options = RestoreBenchOptions(steps=steps, branches=branches, repetitions=repetitions)
    with reported():
        with ERR.status("measuring") as status:
            result = run_async(bench_restore(options, progress=status.update))
        if not quiet:
            print_table(restore_table(result))
        typer.echo(restore_json(result))


@app.command()
def scheduler(
    *,
    tasks: Annotated[int, typer.Option(min=1, help="That the timed scheduler knows.")] = 100_000,
    horizon: Annotated[list[int] | None, typer.Option(min=2, help="Steps of simulated tasks; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of each simulation.")] = 3,
    quiet: Quiet = False,
) -> None:
    """What a plan costs with many tasks, and what adaptive training saves, by simulation.

    Example: cairn bench scheduler --tasks 100000
    """
    from cairn.bench.scheduler import SchedulerBenchOptions, bench_scheduler, scheduler_json, scheduler_table

    options = SchedulerBenchOptions(
        tasks=tasks, horizons=tuple(horizon) if horizon else SchedulerBenchOptions().horizons, seeds=seeds
    )
    with reported():
        with ERR.status("measuring") as status:
            result = bench_scheduler(options, progress=status.update)
        if not quiet:
            print_table(scheduler_table(result))
        typer.echo(scheduler_json(result))


@app.command("snapshot-faults")
def snapshot_faults(
    *,
    faults: Annotated[int, typer.Option(min=1, help="How many things are to go wrong.")] = 100,
    seed: Annotated[int, typer.Option(help="Of what goes wrong, and when.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Kill criu, browsers, containers and owners, fill memory and damage images while states are saved and opened.

    Exit status 1 where anything leaks, a damaged image is opened, or a session is not in the state that was saved.

    Example: cairn bench snapshot-faults --faults 20
    """
    with reported():
        from cairn.bench.snapshot_faults import faults_json, faults_table, sabotage_snapshots

        with ERR.status("spoiling") as status:
            result = sabotage_snapshots(faults=faults, seed=seed, progress=status.update)
        if not quiet:
            print_table(faults_table(result))
        typer.echo(faults_json(result))
    raise typer.Exit(0 if result.ok else 1)


@app.command()
def differential(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Held-out instances of each task.")] = 5,
    task: Annotated[list[str] | None, typer.Option("--task", help="Compare only this task; repeatable.")] = None,
    python: Python = None,
    quiet: Quiet = False,
) -> None:
    """The same actions in Cairn and in miniwob's own environment; exit status 1 where success differs.

    Example: cairn bench differential --task click-test-2 --seeds 2
    """
    from cairn.app.environments import environment_named
    from cairn.bench.differential import DIFFERENTIAL_TASKS, Differential, compare, differential_table

    async def compared() -> Differential:
        environment = environment_named("miniwob")
        try:
            tasks = task or DIFFERENTIAL_TASKS
            return await compare(environment, tasks=tasks, seeds=seeds, python=python, progress=told)
        finally:
            await environment.close()

    with reported():
        with ERR.status("comparing") as status:

            def told(what: str) -> None:
                status.update(f"comparing {what}")

            result = run_async(compared())
        if not quiet:
            print_table(differential_table(result))
        print_json(
            {
                "tasks": len({c.task.template.id for c in result.comparisons}),
                "comparisons": len(result.comparisons),
                "disagreements": len(result.disagreements),
                "rewards_differ": sum(not c.rewards_agree for c in result.comparisons),
                "differ_on": [c.task.id for c in result.disagreements],
            }
        )
    raise typer.Exit(1 if result.disagreements else 0)


@app.command()
def experts(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Held-out instances of each task.")] = 20,
    task: Annotated[list[str] | None, typer.Option("--task", help="Measure only this task; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the page docs/experts.md here.")] = None,
) -> None:
    """How often the scripted experts succeed, and in how many steps.

    Example: cairn bench experts --out docs/experts.md
    """
    from cairn.app.doctor import browser_version
    from cairn.app.environments import environment_named
    from cairn.bench.experts import ExpertScore, experts_page, measure_experts

    async def measured() -> tuple[ExpertScore, ...]:
        environment = environment_named("miniwob")
        try:
            return await measure_experts(environment, seeds=seeds, tasks=task, progress=told)
        finally:
            await environment.close()

    with reported():
        with ERR.status("playing") as status:

            def told(what: str) -> None:
                status.update(what)

            scores = run_async(measured())
        page = experts_page(scores, day=f"{datetime.now(UTC):%Y-%m-%d}", browser=browser_version())
        if out is None:
            OUT.print(page, markup=False)
        else:
            out.write_text(page, encoding="utf-8")
        print_json({"tasks": len(scores), "sure": sum(s.successes >= 0.95 * seeds for s in scores)})


@app.command()
def faults(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="Of training while browsers are killed.")] = 10.0,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two of these kills, about.")] = 4.0,
    kills: Annotated[int, typer.Option(min=0, help="Of a training process, each of which is resumed.")] = 10,
    seed: Annotated[int, typer.Option(help="Of what is killed, and when.")] = 0,
) -> None:
    """Kill -9 browsers under a run, then runs themselves; exit status 1 where anything is lost, wrong or left behind.

    Example: cairn bench faults --minutes 1 --kills 3
    """
    with reported():
        from cairn.bench.faults import kill_browsers, kill_trainer

        with ERR.status("training while browsers are killed") as status:
            browsers = kill_browsers(minutes=minutes, every=every, seed=seed, progress=status.update)
            status.update("training while the trainer is killed")
            trainer = kill_trainer(kills=kills, seed=seed, progress=status.update)
        print_json(
            {
                "ok": browsers.ok and trainer.ok,
                "browsers": dataclasses.asdict(browsers),
                "trainer": dataclasses.asdict(trainer),
            }
        )
    raise typer.Exit(0 if browsers.ok and trainer.ok else 1)
