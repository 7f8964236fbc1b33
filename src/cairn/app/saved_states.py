"""Snapshots outside of a run: saved, opened, listed and removed, for the command line."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cairn.app.environments import (
    build_containers,
    build_environment,
    choose_templates,
    environment_named,
    owner_of,
    require_browser,
)
from cairn.app.snapshots import survey, with_snapshots
from cairn.config.tables import EnvironmentOptions, SnapshotOptions
from cairn.data.ids import ImageId, SnapshotId
from cairn.data.observation import Observation
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import FromSnapshot, Root, Split, Task
from cairn.errors import ConfigError, SetupError, StoreError
from cairn.ports import Environment, EventSink, ExpertSession
from cairn.rollout.unwrap import one_error
from cairn.snapshots.containers.images import Images
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.snapshots.native import kept_states, state_path
from cairn.snapshots.sessions import SavableSession
from cairn.snapshots.shelf import Shelf
from cairn.store.blobs import BlobFolder
from cairn.store.events import FanOut
from cairn.testing.fidelity_report import Cycle, FidelityReport
from cairn.testing.memory import MemoryBlobs
from cairn.testing.snapshot_fidelity import FidelityOptions, check_fidelity

STORES = ("auto", *StoreKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest:
    """A state to play to and to save."""

    environment: str
    task: str
    index: int  # of the training tasks
    steps: int  # that the scripted expert takes from the root
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What was saved, and how long that took."""

    snapshot: Snapshot
    seconds: float


async def save(request: SaveRequest, *, folder: Path, events: EventSink) -> Saved:
    """Open the task, let its expert take the steps, save."""
    async with saved_environment(request.environment, folder=folder, store=request.store, events=events) as environment:
        task = task_named(environment, request.task, index=request.index)
        if request.steps and not environment.has_expert(task.template):
            raise ConfigError(f"{task.template.id} has no expert to take steps: save its root, with --steps 0")
        session = await environment.open(task, start=Root())
        try:
            for step in range(request.steps):
                if await _step(session):
                    raise ConfigError(f"{task.id} was over after {step + 1} of {request.steps} steps: take fewer")
            await session.observe()
            begun = time.perf_counter()
            kept = await session.snapshot()
            seconds = time.perf_counter() - begun
        finally:
            await session.close()
    return Saved(snapshot=Shelf(Home(folder=folder).shelf).get(kept), seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One session opened at a snapshot, verified; and what came of playing on, where that was asked for."""

    seconds: float  # to the compared first observation
    seen: Observation
    steps: int  # that the expert took from there
    reward: float | None


async def reopen(
    wanted: SnapshotId, *, folder: Path, branches: int, play: bool, events: EventSink
) -> tuple[Snapshot, tuple[Opened, ...]]:
    """Open the snapshot in as many sessions at once."""
    snapshot = Shelf(Home(folder=folder).shelf).get(wanted)
    name = owner_of(snapshot.task.template)
    async with saved_environment(
        name, folder=folder, store=snapshot.kind, places=branches, events=events
    ) as environment:
        with one_error():
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(_branch(environment, snapshot, play=play)) for _ in range(branches)]
    return snapshot, tuple(task.result() for task in running)


async def _branch(environment: SnapshotEnvironment, snapshot: Snapshot, *, play: bool) -> Opened:
    begun = time.perf_counter()
    session = await environment.open(snapshot.task, start=FromSnapshot(id=snapshot.id))
    seconds = time.perf_counter() - begun
    steps, reward = 0, None
    try:
        seen = await session.observe()
        if play:
            for steps in range(1, snapshot.task.template.max_turns + 1):  # noqa: B007 - how many it took
                if await _step(session):
                    break
            reward = (await session.evidence()).raw_reward
    finally:
        await session.close()
    return Opened(seconds=seconds, seen=seen, steps=steps, reward=reward)


async def _step(session: SavableSession) -> bool:
    await session.observe()
    action = await session.expert_action() if isinstance(session, ExpertSession) else None
    if action is None:
        raise ConfigError("the expert knows no action in this state")
    return (await session.act(action)).done


def picture_of(folder: Path, image: ImageId) -> bytes:
    """The PNG of an observation."""
    return BlobFolder(Home(folder=folder).blobs).get(image)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a folder holds."""

    snapshots: tuple[Snapshot, ...]  # by task and step
    damaged: tuple[SnapshotId, ...]  # those that cannot be read


def listed(folder: Path) -> Listing:
    """Every snapshot of the folder. Raises `ConfigError` where that is none."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder")
    shelf = Shelf(Home(folder=folder).shelf)
    found: list[Snapshot] = []
    damaged: list[SnapshotId] = []
    for snapshot in shelf.ids():
        try:
            found.append(shelf.get(snapshot))
        except StoreError:
            damaged.append(snapshot)
    return Listing(
        snapshots=tuple(sorted(found, key=lambda s: (s.task.id, s.step, s.id))),
        damaged=tuple(damaged),
    )


async def remove(wanted: Sequence[SnapshotId], *, folder: Path) -> None:
    """Forget snapshots, damaged ones too; a `ConfigError`, before any is gone, where there is none of that id."""
    home = Home(folder=folder)
    shelf = Shelf(home.shelf)
    for snapshot in wanted:
        if snapshot not in shelf:
            raise ConfigError(f"there is no snapshot {snapshot!r} in {folder}")
    for snapshot in wanted:
        shelf.remove(snapshot)
        await _remove_kept(home, snapshot)
    await _collect(home, shelf)
    home.tidy()


async def _remove_kept(home: Home, snapshot: SnapshotId) -> None:
    await _images(home).remove(snapshot)
    state_path(home.states, snapshot).unlink(missing_ok=True)


async def _collect(home: Home, shelf: Shelf) -> None:
    """Remove what is kept of no snapshot, as a killed process leaves it; unless somebody saves here just now."""
    with home.alone() as alone:
        if not alone:
            return
        for snapshot in {*_images(home).kept(), *kept_states(home.states)} - set(shelf.ids()):
            await _remove_kept(home, snapshot)
        with contextlib.suppress(StoreError):  # who knows what a damaged one shows
            seen = (one for snapshot in shelf for one in snapshot.observations)
            BlobFolder(home.blobs).keep_only({one.image for one in seen if one.image})


def _images(home: Home) -> Images:
    return Images(memory=home.memory, disk=home.disk, budget=0)


def task_named(environment: Environment, name: str, *, index: int = 0, split: Split = Split.TRAIN) -> Task:
    """One instance of a template, named as `cairn env tasks` does."""
    return Task(template=choose_templates(environment, [name])[0], split=split, index=index)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Which states of which tasks to save, open, compare and play on from."""

    environment: str
    tasks: Sequence[str]  # none: all that an expert solves
    seeds: int  # training tasks of each, with a state saved at a random step of each
    seed: int  # of those steps


async def stores_to_verify(name: str, wanted: Sequence[str]) -> tuple[Sequence[StoreKind], Sequence[str]]:
    """The wanted stores, or all that work with the environment here; and of those that do not, why."""
    environment = environment_named(name)
    unknown = set(wanted) - set(StoreKind)
    if unknown:
        raise ConfigError(f"there is no snapshot store {min(unknown)!r}: choose {', '.join(StoreKind)}")
    kinds = [kind for kind in StoreKind if not wanted or kind in wanted]
    contained = build_containers(name, blobs=MemoryBlobs()) is not None
    reports = await survey(environment, contained=contained, kinds=kinds)
    broken = [
        f"not {report.kind}: {report.usable.reason}; {report.usable.fix}" for report in reports if report.usable.reason
    ]
    if wanted and broken:
        raise SetupError(broken[0])
    return [report.kind for report in reports if report.usable.ok], broken


async def verify(request: VerifyRequest, store: StoreKind, *, progress: Callable[[Cycle], None]) -> FidelityReport:
    """What one store, alone, keeps of them."""
    with tempfile.TemporaryDirectory(prefix="cairn-verify-") as name:
        home = Home(folder=Path(name))
        try:
            async with saved_environment(
                request.environment, folder=home.folder, store=store, places=4, fallback=False
            ) as environment:
                options = FidelityOptions(
                    templates=choose_templates(environment, request.tasks) if request.tasks else None,
                    indices=tuple(range(request.seeds)),
                    seed=request.seed,
                )
                return await check_fidelity(
                    environment, store=store, options=options, progress=progress, forget=environment.release
                )
        finally:
            home.raze()


@asynccontextmanager
async def saved_environment(
    name: str,
    *,
    folder: Path,
    store: str = "auto",
    places: int = 1,
    events: EventSink | None = None,
    fallback: bool = True,
) -> AsyncGenerator[SnapshotEnvironment]:
    """An environment whose sessions, up to `places` at once, can be saved to a folder and opened from it again."""
    environment_named(name)  # says what is wrong
    if store not in STORES:
        raise ConfigError(f"there is no snapshot store {store!r}: choose {', '.join(STORES)}")
    each = min(places, 8)
    described = {"name": name, "browsers": -(-places // each), "pages_per_browser": each}
    options = EnvironmentOptions.model_validate(described)
    require_browser(options)
    home = Home(folder=folder)
    blobs = BlobFolder(home.blobs)
    environment = build_environment(options, blobs=blobs)
    wanted = SnapshotOptions.model_validate({"store": store})
    async with with_snapshots(
        environment, wanted, home=home, blobs=blobs, events=events or FanOut([]), fallback=fallback
    ) as saved:
        yield saved
