"""Which properties of a live page each store keeps, and that what it does not keep is found."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cairn.data.snapshot import Snapshot, StoreKind
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.states.contained import StatesContainers
from cairn.envs.states.environment import PROPERTIES, StatesEnvironment
from cairn.ports import Session
from cairn.snapshot_ports import SnapshotStore
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.podman import PodmanYard
from cairn.snapshots.containers.yard import Yard
from cairn.snapshots.criu import CriuStore
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.native import NativeStore
from cairn.snapshots.podman import PodmanStore
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.shelf import Shelf
from cairn.testing.fidelity_report import Fate, FidelityReport
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from cairn.testing.snapshot_fidelity import FidelityOptions, check_fidelity
from snapshots.needs import needs_criu, needs_podman

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket, pytest.mark.timeout(300)]

QUICK = ("heap", "interval", "random", "worker", "local-storage", "indexeddb", "history", "download", "text", "dialog")


class ReloadStore(ReplayStore):
    """Takes a page that was loaded again for the saved one."""

    async def open(self, snapshot: Snapshot) -> Session:
        return await self.open_root(snapshot.task)


@asynccontextmanager
async def stage(kind: str) -> AsyncGenerator[SnapshotEnvironment]:
    blobs = MemoryBlobs()
    pages = StatesEnvironment(blobs=blobs, limits=PoolLimits(browsers=1, pages_per_browser=4))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory() as disk:
        store = store_of(kind, pages, blobs, memory=Path(memory), disk=Path(disk))
        environment = SnapshotEnvironment(
            pages, stores=[store], shelf=Shelf(Path(disk) / "shelf"), blobs=blobs, events=MemoryEvents()
        )
        try:
            yield environment
        finally:
            await environment.close()


def store_of(kind: str, pages: StatesEnvironment, blobs: MemoryBlobs, *, memory: Path, disk: Path) -> SnapshotStore:
    containers = StatesContainers(blobs=blobs)
    images = Images(memory=memory / "images", disk=disk / "images", budget=2 << 30)
    match kind:
        case StoreKind.CRIU:
            yard = Yard(folder=memory / "yard", command=containers.command, site=containers.site)
            return CriuStore(containers, yard=yard, images=images)
        case StoreKind.PODMAN:
            yard = PodmanYard(folder=memory / "yard", command=containers.command, site=containers.site)
            return PodmanStore(containers, yard=yard, images=images)
        case StoreKind.NATIVE:
            return NativeStore(pages, folder=disk / "native")
        case StoreKind.REPLAY:
            return ReplayStore(pages)
        case _:
            return ReloadStore(pages)


async def checked(kind: str, *names: str) -> FidelityReport:
    async with stage(kind) as environment:
        templates = tuple(t for t in environment.templates if t.id.removeprefix("states/") in names)
        assert len(templates) == len(names)
        return await check_fidelity(environment, store=kind, options=FidelityOptions(templates=templates, indices=(3,)))


def names_of(report: FidelityReport, fate: Fate) -> set[str]:
    return {cycle.template.removeprefix("states/") for cycle in report.cycles if cycle.fate is fate}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [StoreKind.CRIU, StoreKind.PODMAN])
async def test_an_image_of_the_container_keeps_everything(kind: StoreKind) -> None:
    needs_criu() if kind is StoreKind.CRIU else needs_podman()
    report = await checked(kind, *PROPERTIES)
    assert {(cycle.template, cycle.fate, cycle.reason) for cycle in report.cycles} == {
        (f"states/{name}", Fate.KEPT, "") for name in PROPERTIES
    }


async def test_an_exported_state_keeps_what_it_covers_and_the_rest_is_found() -> None:
    report = await checked(StoreKind.NATIVE, *QUICK)
    assert names_of(report, Fate.KEPT) == {"local-storage", "text"}
    assert names_of(report, Fate.REFUSED) == {"random", "dialog"}  # what can be seen is found at the opening
    assert names_of(report, Fate.ASTRAY) == {"heap", "interval", "worker", "indexeddb", "history", "download"}


async def test_doing_it_again_keeps_all_but_chance_and_the_moment() -> None:
    report = await checked(StoreKind.REPLAY, *QUICK, "clock")
    assert names_of(report, Fate.KEPT) == set(QUICK) - {"random"}
    assert names_of(report, Fate.REFUSED) == {"random", "clock"}


async def test_a_page_that_was_only_loaded_again_keeps_nothing() -> None:
    report = await checked("reload", *QUICK, "cookies", "canvas", "clock", "animation")
    assert names_of(report, Fate.KEPT) == set()
    assert report.count(Fate.REFUSED) + report.count(Fate.ASTRAY) == len(report.cycles)
