"""`cairn snapshot`: states of live sessions, saved and opened again."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cairn.cli.console import ERR, OUT, print_json, print_table, reported
from cairn.cli.running import run_async
from cairn.ports import Event

app = typer.Typer(no_args_is_help=True, help="Save states of live sessions, and open them again.")

Folder = Annotated[Path, typer.Option("--in", help="The folder that holds the snapshots.")]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON instead of a table.")]
_HERE = Path("snapshots")


@app.command()
def save(
    environment: Annotated[str, typer.Argument(help="An environment, as `cairn env list` names it.")],
    task: Annotated[str, typer.Argument(help="A task, as `cairn env tasks ENVIRONMENT` names it.")],
    *,
    index: Annotated[int, typer.Option(min=0, help="Which of the task's training instances.")] = 0,
    steps: Annotated[int, typer.Option(min=0, help="Steps that the scripted expert takes before.")] = 0,
    store: Annotated[str, typer.Option(help="auto, criu, podman, native or replay.")] = "auto",
    folder: Folder = _HERE,
) -> None:
    """Play to a state and save it; the last line is JSON with its id.

    Example: cairn snapshot save miniwob login-user --steps 2
    """
    with reported():
        from cairn.app.saved_states import SaveRequest, save

        request = SaveRequest(environment=environment, task=task, index=index, steps=steps, store=store)
        saved = run_async(save(request, folder=folder, events=_Told()))
    kept = saved.snapshot
    print_json(
        {
            "id": kept.id,
            "task": kept.task.id,
            "step": kept.step,
            "store": kept.kind,
            "bytes": kept.size,
            "seconds": round(saved.seconds, 3),
        }
    )


@app.command("open")
def open_(
    snapshot: Annotated[str, typer.Argument(help="The id that `save` gave.")],
    *,
    branches: Annotated[int, typer.Option(min=1, max=64, help="Sessions to open at once.")] = 1,
    play: Annotated[bool, typer.Option("--play", help="Let the scripted expert go on to the end in each.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Write what is seen to this file.")] = None,
    folder: Folder = _HERE,
) -> None:
    """Open a saved state, verified; each opening is a session of its own. Exit status 1 where playing on fails.

    Example: cairn snapshot open 41d0f3c2a9b87e65 --branches 4 --play
    """
    with reported():
        from cairn.app.saved_states import picture_of, reopen
        from cairn.data.ids import SnapshotId
        from cairn.errors import ConfigError

        if picture is not None and not picture.parent.is_dir():
            raise ConfigError(f"--picture {picture}: there is no folder {picture.parent}")
        found, opened = run_async(
            reopen(SnapshotId(snapshot), folder=folder, branches=branches, play=play, events=_Told())
        )
        if picture is not None and opened[0].seen.image is not None:
            picture.write_bytes(picture_of(folder, opened[0].seen.image))
    table = Table("session", "opened in", *(["steps", "reward"] if play else []))
    for number, one in enumerate(opened, start=1):
        played = [str(one.steps), f"{one.reward:g}"] if one.reward is not None else []
        table.add_row(str(number), f"{one.seconds:.2f} s", *played)
    OUT.print(f"{found.task.id}, step {found.step}: {found.goal}", markup=False, soft_wrap=True)
    print_table(table)
    print_json(
        {
            "id": found.id,
            "seconds": [round(one.seconds, 3) for one in opened],
            "rewards": [one.reward for one in opened] if play else None,
        }
    )
    raise typer.Exit(1 if play and any(one.reward != 1.0 for one in opened) else 0)


@app.command("list")
def list_(*, folder: Folder = _HERE, as_json: Json = False) -> None:
    """List the snapshots of a folder.

    Example: cairn snapshot list
    """
    with reported():
        from cairn.app.saved_states import listed

        found = listed(folder)
    if as_json:
        rows: dict[str, object] = {damaged: {"damaged": True} for damaged in found.damaged}
        for s in found.snapshots:
            rows[s.id] = {"task": s.task.id, "step": s.step, "store": s.kind, "bytes": s.size}
        print_json(rows)
        return
    if not (found.snapshots or found.damaged):
        ERR.print(f"there are no snapshots in {folder}", markup=False, soft_wrap=True)
        return
    table = Table("id", "task", "step", "store", "MB", "from")
    for s in found.snapshots:
        table.add_row(s.id, s.task.id, str(s.step), s.kind, f"{s.size / 1e6:.1f}", s.parent or "")
    for damaged in found.damaged:
        table.add_row(damaged, "damaged: remove it")
    print_table(table)


@app.command()
def rm(
    snapshots: Annotated[list[str] | None, typer.Argument(help="Ids, as `cairn snapshot list` shows them.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All snapshots of the folder.")] = False,
    folder: Folder = _HERE,
) -> None:
    """Remove snapshots with everything that is kept for them.

    Example: cairn snapshot rm 41d0f3c2a9b87e65
    """
    with reported():
        from cairn.app.saved_states import listed, remove
        from cairn.data.ids import SnapshotId
        from cairn.errors import ConfigError

        if not snapshots and not everything:
            raise ConfigError("name the snapshots to remove, or say --all")
        found = listed(folder)
        all_here = [*(s.id for s in found.snapshots), *found.damaged]
        wanted = all_here if everything else [SnapshotId(s) for s in snapshots or ()]
        run_async(remove(wanted, folder=folder))
    OUT.print(f"removed {len(wanted)}")


@app.command()
def verify(
    environment: Annotated[str, typer.Argument(help="An environment whose experts can play on.")] = "states",
    *,
    store: Annotated[
        list[str] | None, typer.Option(help="criu, podman, native or replay; repeatable. Default: all that work here.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Training instances of each task.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the steps at which states are saved.")] = 0,
    as_json: Json = False,
) -> None:
    """Save states at random steps, open them, compare, and play on: what does each store keep?

    The environment `states` has a page for every property of a live page. Exit status 1 where criu or podman, which
    keep everything, did not.

    Examples: cairn snapshot verify

    cairn snapshot verify miniwob --store criu --task login-user --seeds 10
    """
    with reported():
        from cairn.app.saved_states import VerifyRequest, stores_to_verify, verify
        from cairn.testing.fidelity_report import fidelity_json, fidelity_matrix, fidelity_table

        request = VerifyRequest(environment=environment, tasks=task or (), seeds=seeds, seed=seed)
        kinds, left_out = run_async(stores_to_verify(environment, store or ()))
        with ERR.status("saving and opening") as status:
            reports = [
                run_async(verify(request, kind, progress=lambda c: status.update(f"{c.task}: {c.fate}")))
                for kind in kinds
            ]
    if not as_json:
        for report in reports:
            OUT.print(fidelity_table(report))
        print_table(fidelity_matrix(reports))
        for line in left_out:
            OUT.print(line, markup=False)
    for report in reports:
        typer.echo(fidelity_json(report))
    raise typer.Exit(0 if all(report.ok for report in reports if report.store in {"criu", "podman"}) else 1)


class _Told:
    """Says on standard error which store is used, and what went wrong with an opening."""

    def emit(self, event: Event) -> None:
        match event.kind:
            case "snapshot_store":
                ERR.print(f"store: {event.fields['store']} ({event.fields['why']})", markup=False, soft_wrap=True)
            case "snapshot_failed":
                ERR.print(f"{event.fields['store']}: {event.fields['error']}", markup=False, soft_wrap=True)
            case "snapshot_fallback":
                ERR.print(f"opened by the store {event.fields['store']} instead", markup=False, soft_wrap=True)
            case _:
                pass
