"""What it costs to come back to a state: every snapshot store against replay, on the same pages, in turn."""

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from cairn.app.environments import build_environment, choose_templates, environment_named, require_browser
from cairn.app.snapshots import StoreReport, survey, with_snapshots
from cairn.bench.memory import pss_mb
from cairn.config.tables import EnvironmentOptions, SnapshotOptions
from cairn.data.ids import SnapshotId
from cairn.data.snapshot import StoreKind
from cairn.data.task import FromSnapshot, Root, Split, Task
from cairn.errors import SessionError
from cairn.ports import Event, ExpertSession
from cairn.rollout.unwrap import one_error
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.snapshots.sessions import SavableSession
from cairn.store.blobs import BlobFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page to come back to."""

    environment: str
    task: str
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBenchOptions:
    """What is measured."""

    pages: tuple[Page, ...] = (
        Page(environment="states", task="settle"),
        Page(environment="miniwob", task="book-flight-nodelay"),
    )
    steps: int = 10  # from the root to the state; fewer where the expert is done before
    branches: int = 8
    repetitions: int = 5
    stores: tuple[StoreKind, ...] = tuple(StoreKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one store on one page; medians, in seconds."""

    kind: StoreKind
    save: float
    restore: float  # to the first observation, compared with what was saved
    restore_vs_replay: float  # of the same repetition
    branches: float  # until all of them were open
    bytes: int
    branch_pss_mb: (
        float | None
    )  # memory of one branch's processes, its share of shared pages; None where they are shared


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCosts:
    """One page's."""

    page: Page
    steps: int
    costs: tuple[Cost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBench:
    """The result; `unusable` says of each store that was left out, why."""

    pages: tuple[PageCosts, ...]
    branches: int
    unusable: tuple[str, ...]


async def bench_restore(
    options: RestoreBenchOptions | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> RestoreBench:
    """Measure all stores in turn, `repetitions` times over, so that they meet the same disturbances."""
    options = options or RestoreBenchOptions()
    measured: list[PageCosts] = []
    unusable: list[str] = []
    for page in options.pages:
        reports = await survey(environment_named(page.environment), kinds=options.stores)
        troubles = {report.kind: _trouble(report) for report in reports}
        unusable += [f"{page.task}, {kind}: {trouble}" for kind, trouble in troubles.items() if trouble]
        kinds = [kind for kind, trouble in troubles.items() if not trouble]
        with one_error(), tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            measured.append(await _measure(page, kinds, options, folder=Path(folder), progress=progress))
    return RestoreBench(pages=tuple(measured), branches=options.branches, unusable=tuple(unusable))


def _trouble(report: StoreReport) -> str:
    """Why a store cannot come back to a page's state."""
    return report.usable.reason or (report.leaves_out and f"leaves out {report.leaves_out}")


@dataclass(slots=True, kw_only=True)
class _Measured:
    """One store at work on one page, and its times so far."""

    kind: StoreKind
    environment: SnapshotEnvironment
    session: SavableSession
    task: Task
    saves: list[float] = field(default_factory=list[float])
    opens: list[float] = field(default_factory=list[float])
    branched: list[float] = field(default_factory=list[float])
    pss: list[float] = field(default_factory=list[float])
    size: int = 0


async def _measure(
    page: Page,
    kinds: Sequence[StoreKind],
    options: RestoreBenchOptions,
    *,
    folder: Path,
    progress: Callable[[str], None],
) -> PageCosts:
    async with contextlib.AsyncExitStack() as stack:
        working = [await _at_work(page, kind, options, folder=folder / kind, stack=stack) for kind in kinds]
        for repetition in range(1, options.repetitions + 1):
            for one in working:
                progress(f"{page.task}, {one.kind}, repetition {repetition} of {options.repetitions}")
                await _once(one, branches=options.branches)
        replayed = next(one.opens for one in working if one.kind is StoreKind.REPLAY)
        steps = len(working[0].session.deeds)
    return PageCosts(page=page, steps=steps, costs=tuple(_cost(one, replayed) for one in working))


async def _at_work(
    page: Page, kind: StoreKind, options: RestoreBenchOptions, *, folder: Path, stack: contextlib.AsyncExitStack
) -> _Measured:
    """A store with a session in the state that is to be saved; the stack ends both."""
    described = {"name": page.environment, "browsers": 2, "pages_per_browser": -(-(options.branches + 2) // 2)}
    settings = EnvironmentOptions.model_validate(described)
    require_browser(settings)
    home = Home(folder=folder)
    stack.callback(home.raze)
    blobs = BlobFolder(home.blobs)
    environment = build_environment(settings, blobs=blobs)
    wanted = SnapshotOptions.model_validate({"store": kind.value})
    saved = await stack.enter_async_context(
        with_snapshots(environment, wanted, home=home, blobs=blobs, events=_Strict(), fallback=False)
    )
    template = choose_templates(saved, [page.task])[0]
    task = Task(template=template, split=Split.TRAIN, index=page.index)
    session = await _played(saved, task, options.steps)
    stack.push_async_callback(session.close)
    return _Measured(kind=kind, environment=saved, session=session, task=task)


async def _played(environment: SnapshotEnvironment, task: Task, steps: int) -> SavableSession:
    """A session that many steps of the expert from the root, or, where it is done sooner, just before its last."""
    session = await environment.open(task, start=Root())
    for taken in range(steps):
        await session.observe()
        action = await session.expert_action() if isinstance(session, ExpertSession) else None
        if action is None or (await session.act(action)).done:
            await session.close()
            return await _played(environment, task, taken)
    await session.observe()
    return session


async def _once(one: _Measured, *, branches: int) -> None:
    begun = time.perf_counter()
    kept = await one.session.snapshot()
    one.saves.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    session = await _opened(one, kept)
    one.opens.append(time.perf_counter() - begun)
    await session.close()
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        opening = [group.create_task(_opened(one, kept)) for _ in range(branches)]
    one.branched.append(time.perf_counter() - begun)
    for task in opening:
        found = pss_mb(task.result().inner)
        if found is not None:
            one.pss.append(found)
    for task in opening:
        await task.result().close()
    one.size = one.environment.snapshot(kept).size
    await one.environment.release(kept)


async def _opened(one: _Measured, kept: SnapshotId) -> SavableSession:
    return await one.environment.open(one.task, start=FromSnapshot(id=kept))


def _cost(one: _Measured, replayed: Sequence[float]) -> Cost:
    return Cost(
        kind=one.kind,
        save=statistics.median(one.saves),
        restore=statistics.median(one.opens),
        restore_vs_replay=statistics.median(a / b for a, b in zip(one.opens, replayed, strict=True)),
        branches=statistics.median(one.branched),
        bytes=one.size,
        branch_pss_mb=statistics.median(one.pss) if one.pss else None,
    )


class _Strict:
    """An `EventSink` for which an opening that fails, or is done by another store, spoils the measurement."""

    def emit(self, event: Event) -> None:
        if event.kind in {"snapshot_failed", "snapshot_fallback"}:
            raise SessionError(f"{event.fields['store']} failed while it was measured: {event.fields.get('error', '')}")


def restore_table(result: RestoreBench) -> Table:
    """One line for each page and store."""
    table = Table(
        "page", "steps", "store", "save", "open", "of replay", f"{result.branches} at once", "MB", "MB/branch"
    )
    for page in result.pages:
        for cost in page.costs:
            table.add_row(
                page.page.task,
                str(page.steps),
                cost.kind,
                f"{cost.save:.3f} s",
                f"{cost.restore:.3f} s",
                f"{cost.restore_vs_replay:.1%}",
                f"{cost.branches:.2f} s",
                f"{cost.bytes / 1e6:.1f}",
                "" if cost.branch_pss_mb is None else f"{cost.branch_pss_mb:.0f}",
            )
    table.caption = "\n".join(f"not {line}" for line in result.unusable)
    return table


def restore_json(result: RestoreBench) -> str:
    """Each store's costs on the first page that it can come back to, and every page's by its name."""
    pages = {page.page.task: {cost.kind.value: _described(cost) for cost in page.costs} for page in result.pages}
    first = {kind: cost for costs in reversed(pages.values()) for kind, cost in costs.items()}
    return json.dumps({**first, "pages": pages, "branches": result.branches, "unusable": list(result.unusable)})


def _described(cost: Cost) -> dict[str, float | int | None]:
    return {
        "save_s": round(cost.save, 4),
        "restore_s": round(cost.restore, 4),
        "restore_vs_replay": round(cost.restore_vs_replay, 4),
        "branches_s": round(cost.branches, 3),
        "bytes": cost.bytes,
        "branch_pss_mb": None if cost.branch_pss_mb is None else round(cost.branch_pss_mb, 1),
    }
