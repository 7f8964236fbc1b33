"""Which properties of a live page each store keeps, and that what it does not keep is found."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from cairn.data.snapshot import Snapshot, StoreKind
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.states.contained import StatesContainers
from cairn.envs.states.environment import PROPERTIES, StatesEnvironment
from cairn.ports import Session
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.shelf import Shelf
from cairn.testing.fidelity_report import Fate, FidelityReport
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from cairn.testing.snapshot_fidelity import FidelityOptions, check_fidelity
from snapshots.stores import places, store_of

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket, pytest.mark.timeout(300)]

QUICK = ("heap", "interval", "random", "worker", "local-storage", "indexeddb", "history", "download", "text", "dialog")


class ReloadStore(ReplayStore):
    """Takes a page that was loaded again for the saved one."""

    async def open(self, snapshot: Snapshot) -> Session:
        return await self.open_root(snapshot.task)


@asynccontextmanager
async def stage(kind: StoreKind | None) -> AsyncGenerator[SnapshotEnvironment]:
    """With a store of that kind; without one, each page is loaded again."""
    blobs = MemoryBlobs()
    pages = StatesEnvironment(blobs=blobs, limits=PoolLimits(browsers=1, pages_per_browser=4))
    with places() as own:
        store = (
            store_of(kind, pages, StatesContainers(blobs=blobs), places=own) if kind is not None else ReloadStore(pages)
        )
        environment = SnapshotEnvironment(
            pages, stores=[store], shelf=Shelf(own.disk / "shelf"), blobs=blobs, events=MemoryEvents()
        )
        try:
            yield environment
        finally:
            await environment.close()


async def checked(kind: StoreKind | None, *names: str) -> FidelityReport:
    async with stage(kind) as environment:
        templates = tuple(t for t in environment.templates if t.id.removeprefix("states/") in names)
        assert len(templates) == len(names)
        return await check_fidelity(
            environment, store=kind or "reload", options=FidelityOptions(templates=templates, indices=(3,))
        )


def names_of(report: FidelityReport, fate: Fate) -> set[str]:
    return {cycle.template.removeprefix("states/") for cycle in report.cycles if cycle.fate is fate}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [StoreKind.CRIU, StoreKind.PODMAN])
async def test_an_image_of_the_container_keeps_everything(kind: StoreKind) -> None:
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
    report = await checked(None, *QUICK, "cookies", "canvas", "clock", "animation")
    assert names_of(report, Fate.KEPT) == set()
    assert report.count(Fate.REFUSED) + report.count(Fate.ASTRAY) == len(report.cycles)
