"""Which snapshot stores a run has: asked for, or the best that this host and the environment support."""

import contextlib
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cairn.config import SnapshotOptions
from cairn.data import ledger as ledgers
from cairn.data.ids import TemplateId
from cairn.data.ledger import Ledger, Quantity
from cairn.data.snapshot import StoreKind
from cairn.envs.miniwob.contained import MiniwobContainers
from cairn.errors import SetupError
from cairn.ports import BlobStore, Environment, Event, EventSink
from cairn.scratch import make_root
from cairn.snapshot_ports import Contained, PortableEnvironment, SnapshotStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.probe import MEMORY, Usable, proved
from cairn.snapshots.containers.yard import Yard
from cairn.snapshots.criu import CriuStore
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.snapshots.native import NativeStore
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.shelf import Shelf

_GIGABYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """Whether one store can be used, for `cairn doctor` and for the choice of `auto`."""

    kind: StoreKind
    usable: Usable


async def survey(environment: Environment | None = None, *, contained: bool = True) -> tuple[StoreReport, ...]:
    """Every store, best first, with what keeps it from working here (or with that environment)."""
    criu = await proved() if contained else Usable(reason="this environment cannot work in containers", fix=_CONTAINED)
    portable = environment is None or isinstance(environment, PortableEnvironment)
    native = Usable() if portable else Usable(reason="this environment exports no states", fix=_PORTABLE)
    return (
        StoreReport(kind=StoreKind.CRIU, usable=criu),
        StoreReport(kind=StoreKind.NATIVE, usable=native),
        StoreReport(kind=StoreKind.REPLAY, usable=Usable()),
    )


_CONTAINED = "implement `Contained` for it (docs/snapshots.md)"
_PORTABLE = "implement `PortableEnvironment` for it (docs/snapshots.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The store that keeps states, those that help out below it, and why it is not a better one."""

    kinds: tuple[StoreKind, ...]
    why: str


def choose(wanted: str, reports: Sequence[StoreReport]) -> Choice:
    """The wanted store, or for `auto` the first usable one, with the usable ones below it for fallback.

    Raises `SetupError`, with the fix, where the wanted one cannot be used.
    """
    if wanted != "auto":
        report = next(report for report in reports if report.kind == wanted)
        if not report.usable.ok:
            raise SetupError(f"the snapshot store {wanted} cannot be used: {report.usable.reason}; {report.usable.fix}")
    usable = [report.kind for report in reports if report.usable.ok]
    chosen = usable[0] if wanted == "auto" else StoreKind(wanted)
    passed = [report for report in reports[: [r.kind for r in reports].index(chosen)] if not report.usable.ok]
    why = "; ".join(f"not {report.kind}: {report.usable.reason}" for report in passed) or "the most exact one"
    return Choice(kinds=tuple(usable[usable.index(chosen) :]), why=why if wanted == "auto" else "as asked")


@asynccontextmanager
async def with_snapshots(
    environment: Environment, options: SnapshotOptions, *, home: Home, blobs: BlobStore, events: EventSink
) -> AsyncGenerator[SnapshotEnvironment]:
    """The environment with sessions that can be saved; what was opened for it is closed in the end."""
    containers = _containers(environment.name, blobs)
    wanted = options.store
    needs_proof = wanted in {"auto", StoreKind.CRIU} and containers is not None
    reports = await survey(environment, contained=needs_proof)
    choice = choose(wanted, reports)
    events.emit(Event(kind="snapshot_store", fields={"store": choice.kinds[0], "why": choice.why}))
    with contextlib.ExitStack() as stack:
        places = _Places(home=home, containers=containers, budget=int(options.memory_gb * _GIGABYTE), stack=stack)
        saved = SnapshotEnvironment(
            environment,
            stores=[_store(kind, environment, places) for kind in choice.kinds],
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where stores keep what they keep."""

    home: Home
    containers: Contained | None
    budget: int  # bytes of images in memory
    stack: contextlib.ExitStack  # what goes when the stores do


def _store(kind: StoreKind, environment: Environment, places: _Places) -> SnapshotStore:
    home, containers = places.home, places.containers
    if kind is StoreKind.CRIU and containers is not None:
        home.claim()
        root = make_root(MEMORY)
        places.stack.callback(shutil.rmtree, root, ignore_errors=True)
        return CriuStore(
            containers,
            yard=Yard(folder=root / "yard", command=containers.command, site=containers.site),
            images=Images(memory=home.memory, disk=home.disk, budget=places.budget),
        )
    if kind is StoreKind.NATIVE and isinstance(environment, PortableEnvironment):
        return NativeStore(environment, folder=home.states)
    return ReplayStore(environment)


def _containers(name: str, blobs: BlobStore) -> Contained | None:
    return MiniwobContainers(blobs=blobs) if name == "miniwob" else None


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
