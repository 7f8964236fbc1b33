"""Which snapshot stores a run has: asked for, or the best that this host and the environment support."""

import contextlib
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cairn.app.environments import build_containers
from cairn.config.tables import SnapshotOptions
from cairn.data import ledger as ledgers
from cairn.data.ids import TemplateId
from cairn.data.ledger import Ledger, Quantity
from cairn.data.snapshot import StoreKind
from cairn.errors import SetupError
from cairn.ports import BlobStore, Environment, Event, EventSink
from cairn.scratch import make_root
from cairn.snapshot_ports import Contained, ContainerYard, PortableEnvironment, SnapshotStore
from cairn.snapshots.contained import ContainerStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.podman import PodmanOptions, PodmanYard
from cairn.snapshots.containers.podman_host import Runtime
from cairn.snapshots.containers.podman_program import Compression
from cairn.snapshots.containers.probe import MEMORY, podman_proved, proved
from cairn.snapshots.containers.usable import Usable
from cairn.snapshots.containers.yard import Limits, Yard
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.snapshots.native import NativeStore
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.shelf import Shelf

_GIGABYTE = 1 << 30
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """Whether one store can be used, for `cairn doctor` and for the choice of `auto`."""

    kind: StoreKind
    usable: Usable
    leaves_out: str = ""  # what is lost without a word, so that nobody chooses it who does not say so


async def survey(
    environment: Environment | None = None, *, contained: bool = True, kinds: Sequence[StoreKind] = tuple(StoreKind)
) -> tuple[StoreReport, ...]:
    """Those stores, best first, with what keeps each from working here (or with that environment)."""
    return tuple([await _report(kind, environment, contained=contained) for kind in kinds])


async def _report(kind: StoreKind, environment: Environment | None, *, contained: bool) -> StoreReport:
    match kind:
        case StoreKind.CRIU | StoreKind.PODMAN if not contained:
            return StoreReport(kind=kind, usable=Usable(reason="this environment knows no containers", fix=_CONTAINED))
        case StoreKind.CRIU:
            return StoreReport(kind=kind, usable=await proved())
        case StoreKind.PODMAN:
            return StoreReport(kind=kind, usable=await podman_proved())
        case StoreKind.NATIVE if environment is not None:
            if not isinstance(environment, PortableEnvironment):
                return StoreReport(kind=kind, usable=Usable(reason="this environment exports no states", fix=_PORTABLE))
            return StoreReport(kind=kind, usable=Usable(), leaves_out=", ".join(environment.uncovered))
        case _:
            return StoreReport(kind=kind, usable=Usable())


_CONTAINED = "implement `Contained` for it (docs/snapshots.md)"
_PORTABLE = "implement `PortableEnvironment` for it (docs/snapshots.md)"
_IN_CONTAINERS = frozenset({StoreKind.CRIU, StoreKind.PODMAN})  # neither opens what the other one saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The store that keeps states, those that help out below it, and why it is not a better one."""

    kinds: tuple[StoreKind, ...]
    why: str


async def choose(wanted: str, report: Callable[[StoreKind], Awaitable[StoreReport]]) -> Choice:
    """The wanted store, or for `auto` the first usable one, with those below it that leave nothing out.

    Raises `SetupError`, with the fix, where the wanted one cannot be used.
    """
    if wanted != "auto":
        found = await report(StoreKind(wanted))
        if not found.usable.ok:
            trouble = f"{found.usable.reason}; {found.usable.fix}"
            raise SetupError(f"the snapshot store {wanted} cannot be used: {trouble}")
        return Choice(kinds=(found.kind, *await _below(found.kind, report)), why="as asked")
    passed: list[str] = []
    for kind in StoreKind:
        found = await report(kind)
        trouble = found.usable.reason or (found.leaves_out and f"it leaves out {found.leaves_out}")
        if not trouble:
            why = "; ".join(passed) or "the most exact one"
            return Choice(kinds=(kind, *await _below(kind, report)), why=why)
        passed.append(f"not {kind}: {trouble}")
    raise SetupError(f"no snapshot store can be used: {'; '.join(passed)}")


async def _below(kind: StoreKind, report: Callable[[StoreKind], Awaitable[StoreReport]]) -> list[StoreKind]:
    lower = list(StoreKind)[list(StoreKind).index(kind) + 1 :]
    found = [await report(below) for below in lower if below not in _IN_CONTAINERS]
    return [one.kind for one in found if one.usable.ok and not one.leaves_out]


@asynccontextmanager
async def with_snapshots(
    environment: Environment,
    options: SnapshotOptions,
    *,
    home: Home,
    blobs: BlobStore,
    events: EventSink,
    fallback: bool = True,
) -> AsyncGenerator[SnapshotEnvironment]:
    """The environment with sessions that can be saved; what was opened for it is closed in the end.

    Without `fallback` the chosen store stands alone, to be judged or measured.
    """
    containers = build_containers(environment.name, blobs=blobs, full=options.browser == "full")

    async def report(kind: StoreKind) -> StoreReport:
        return (await survey(environment, contained=containers is not None, kinds=[kind]))[0]

    choice = await choose(options.store, report)
    kinds = choice.kinds if fallback else choice.kinds[:1]
    events.emit(Event(kind="snapshot_store", fields={"store": kinds[0], "why": choice.why}))
    with contextlib.ExitStack() as stack:
        places = _Places(home=home, containers=containers, options=options, stack=stack)
        saved = SnapshotEnvironment(
            environment,
            stores=[_store(kind, environment, places) for kind in kinds],
            shelf=Shelf(home.shelf),
            blobs=blobs,
            events=events,
            tolerance=options.tolerance,
        )
        try:
            with home.alone() as alone:
                if alone:
                    await saved.collect()
            with home.shared():
                yield saved
        finally:
            await saved.close()
            home.tidy()


async def put_to_rest(environment: SnapshotEnvironment) -> None:
    """Leave nothing of it in memory: nobody opens its states for a while."""
    for store in environment.stores:
        if isinstance(store, ContainerStore):
            await store.rest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where stores keep what they keep."""

    home: Home
    containers: Contained | None
    options: SnapshotOptions
    stack: contextlib.ExitStack  # what goes when the stores do


def _store(kind: StoreKind, environment: Environment, places: _Places) -> SnapshotStore:
    home, containers = places.home, places.containers
    if kind in _IN_CONTAINERS and containers is not None:
        home.claim()
        images = Images(memory=home.memory, disk=home.disk, budget=int(places.options.memory_gb * _GIGABYTE))
        return ContainerStore(containers, yard=_yard(kind, containers, places), images=images)
    if kind is StoreKind.NATIVE and isinstance(environment, PortableEnvironment):
        return NativeStore(environment, folder=home.states)
    return ReplayStore(environment)


def _yard(kind: StoreKind, containers: Contained, places: _Places) -> ContainerYard:
    options = places.options
    root = make_root(MEMORY)
    places.stack.callback(shutil.rmtree, root, ignore_errors=True)
    limits = Limits(
        disk=options.container_disk_mb * _MEGABYTE,
        memory=options.container_memory_mb * _MEGABYTE,
        processes=options.container_processes,
    )
    folder, command, site = root / "yard", containers.command, containers.site
    if kind is StoreKind.CRIU:
        return Yard(folder=folder, command=command, site=site, limits=limits)
    how = PodmanOptions(runtime=Runtime(options.podman_runtime), compression=Compression(options.podman_compression))
    return PodmanYard(folder=folder, command=command, site=site, limits=limits, options=how)


class SnapshotCounts:
    """An `EventSink` that hands saves, failed openings and fallbacks to the ledger."""

    def __init__(self, count: Callable[[Ledger], None]) -> None:
        self._count = count

    def emit(self, event: Event) -> None:
        quantity = _COUNTED.get(event.kind)
        if quantity is not None:
            self._count(ledgers.of_snapshot(quantity, TemplateId(str(event.fields["template"]))))


_COUNTED = {
    "snapshot_saved": Quantity.SAVES,
    "snapshot_failed": Quantity.RESTORE_FAILURES,
    "snapshot_fallback": Quantity.RESTORE_FALLBACKS,
}
