"""Snapshots of snapshots, twenty deep, and sixteen branches of one state that go apart."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cairn.app.saved_states import saved_environment, task_named
from cairn.data.action import Action, Click, Hover, Type
from cairn.data.ids import ElementId, SnapshotId
from cairn.data.task import FromSnapshot, Root, Split, Task
from cairn.envs.miniwob.chain import chain_of, tasks_of
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.snapshots.sessions import SavableSession
from cairn.testing.memory import MemoryEvents
from snapshots.needs import needs_criu
from snapshots.playing import expert_step, finished

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket]
DEPTH, BRANCHES = 20, 16


@asynccontextmanager
async def by_criu(events: MemoryEvents, *, places: int, name: str = "miniwob") -> AsyncGenerator[SnapshotEnvironment]:
    needs_criu()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder=Path(folder) / "kept")
        try:
            async with saved_environment(
                name, folder=home.folder, store="criu", places=places, events=events, fallback=False
            ) as environment:
                yield environment
        finally:
            home.raze()


def typed(number: int) -> Action:
    """A little more text with every step of the chain; now and then the pointer moves instead."""
    return Hover(ElementId(1)) if number % 5 == 4 else Type(f"text {number}", ElementId(2))


@pytest.mark.slow
async def test_a_chain_of_twenty_snapshots_holds_everything_that_was_done() -> None:
    events = MemoryEvents()
    async with by_criu(events, places=2) as environment:
        task = task_named(environment, "login-user", index=3)
        plain = await environment.open(task, start=Root())
        chained: SavableSession = await environment.open(task, start=Root())
        kept = SnapshotId("")
        for number in range(DEPTH):
            for session in (plain, chained):
                await session.observe()
                await session.act(typed(number))
            kept = await chained.snapshot()
            await chained.close()
            chained = await environment.open(task, start=FromSnapshot(id=kept))
        assert len(chained.history) == DEPTH
        assert (await chained.observe()).digest == (await plain.observe()).digest
        shelf = [environment.snapshot(kept)]
        while shelf[-1].parent is not None:
            shelf.append(environment.snapshot(shelf[-1].parent))
        assert [snapshot.step for snapshot in shelf] == list(range(DEPTH, 0, -1))
        for session in (plain, chained):
            await session.close()
    assert set(events.kinds()) == {"snapshot_store", "snapshot_saved"}  # no opening was tried twice


@pytest.mark.slow
async def test_sixteen_branches_of_one_state_go_apart() -> None:
    events = MemoryEvents()
    async with by_criu(events, places=BRANCHES + 1) as environment:
        task = task_named(environment, "click-checkboxes-large", index=4)
        session = await environment.open(task, start=Root())
        await session.observe()
        await session.act(Click(ElementId(1)))
        before = await session.observe()
        kept = await session.snapshot()
        async with asyncio.TaskGroup() as group:
            opening = [group.create_task(environment.open(task, start=FromSnapshot(id=kept))) for _ in range(BRANCHES)]
        branches = [opened.result() for opened in opening]
        pairs = [(a, b) for a in range(2, 7) for b in range(a + 1, 7)] + [(n, n) for n in range(2, 8)]
        for branch, (first, second) in zip(branches, pairs, strict=True):
            for element in (first, second) if first != second else (first,):
                assert (await branch.act(Click(ElementId(element)))).message == ""
        states = {(await branch.observe()).digest for branch in branches}
        assert len(states) == BRANCHES
        assert (await session.observe()).digest == before.digest
        for branch in (*branches, session):
            await branch.close()
    assert set(events.kinds()) == {"snapshot_store", "snapshot_saved"}


@pytest.mark.slow
async def test_an_episode_of_several_tasks_goes_on_from_any_of_them() -> None:
    events = MemoryEvents()
    async with by_criu(events, places=2, name="miniwob-chain") as environment:
        template = environment.templates[0]
        task = Task(template=template, split=Split.TRAIN, index=5)
        session = await environment.open(task, start=Root())
        kept: list[SnapshotId] = []
        over = False
        while not over:
            await session.observe()
            kept.append(await session.snapshot())
            over = await expert_step(session)
        assert (await session.evidence()).raw_reward == 1.0
        await session.close()
        goals: set[str] = set()
        for snapshot in kept:
            again = await environment.open(task, start=FromSnapshot(id=snapshot))
            goals.add((await again.observe()).goal)
            assert await finished(again) == 1.0
        assert len(goals) == len(tasks_of(chain_of(template)))
    assert set(events.kinds()) == {"snapshot_store", "snapshot_saved"}
