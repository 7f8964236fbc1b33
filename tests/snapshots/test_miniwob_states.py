"""MiniWoB++ saved and opened at every step, by every store that this machine has."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.snapshot import StoreKind
from cairn.data.task import FromSnapshot, Root, Split, Task, Template
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.contained import MiniwobContainers
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.snapshot_ports import SnapshotStore
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.shelf import Shelf
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from cairn.testing.snapshot_contract import SNAPSHOT_CONTRACT, Check
from snapshots.playing import MOST_STEPS, expert_step, finished
from snapshots.stores import places, store_of

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket, pytest.mark.asyncio(loop_scope="module")]
BLOBS = MemoryBlobs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    environment: SnapshotEnvironment
    store: SnapshotStore
    events: MemoryEvents
    kind: StoreKind


@pytest_asyncio.fixture(
    loop_scope="module", scope="module", params=[StoreKind.CRIU, StoreKind.PODMAN, StoreKind.NATIVE, StoreKind.REPLAY]
)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    kind: StoreKind = request.param
    environment = MiniwobEnvironment(
        blobs=BLOBS, options=MiniwobOptions(limits=PoolLimits(browsers=1, pages_per_browser=6))
    )
    with places() as own:
        store = store_of(kind, environment, MiniwobContainers(blobs=BLOBS), places=own)
        events = MemoryEvents()
        saved = SnapshotEnvironment(
            environment, stores=[store], shelf=Shelf(own.disk / "shelf"), blobs=BLOBS, events=events
        )
        yield Stage(environment=saved, store=store, events=events, kind=kind)
        await saved.close()


def task_of(name: str, index: int = 0) -> Task:
    return Task(template=Template(id=TemplateId(f"miniwob/{name}"), max_turns=20), split=Split.TRAIN, index=index)


@pytest.mark.parametrize("check", SNAPSHOT_CONTRACT, ids=lambda c: c.__name__)
async def test_the_snapshot_contract(stage: Stage, check: Check) -> None:
    await check(stage.store, task_of("login-user", 4))


@pytest.mark.parametrize("name", ["login-user", "click-checkboxes", "enter-date", "click-tab-2", "use-autocomplete"])
async def test_every_step_can_be_saved_and_played_on_to_success(stage: Stage, name: str) -> None:
    if stage.kind is StoreKind.REPLAY and name == "enter-date":
        pytest.skip("its expert counts the keys that it has pressed, and replay does not ask experts")
    session = await stage.environment.open(task_of(name, 3), start=Root())
    kept: list[SnapshotId] = []
    for _ in range(MOST_STEPS):
        await session.observe()
        kept.append(await session.snapshot())
        if await expert_step(session):
            break
    assert (await session.evidence()).raw_reward == 1.0
    await session.close()
    for step, snapshot in enumerate(kept):
        again = await stage.environment.open(task_of(name, 3), start=FromSnapshot(id=snapshot))
        assert len(again.history) == step
        assert await finished(again) == 1.0
    assert set(stage.events.kinds()) == {"snapshot_saved"}
