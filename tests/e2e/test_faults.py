"""Browsers that are killed under a round of rollouts, and a run whose own process is killed."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from cairn import open_run
from cairn.data.action import Action
from cairn.data.ids import GroupId, SnapshotId
from cairn.data.ledger import Quantity, of_groups
from cairn.data.observation import Observation
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Start, Task
from cairn.data.trajectory import Ending, Evidence, Outcome, ScoredGroup
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.loop.progress import Phase
from cairn.loop.progress import read as read_progress
from cairn.ports import Session, Step
from cairn.rollout.runner import RolloutRunner
from cairn.store.lock import RunLock
from cairn.testing.leaks import footprint, leaks_since, private_temporary_directory
from cairn.testing.memory import MemoryBlobs
from cairn.testing.scripted_policy import ScriptedCodec, ScriptedEngine, uniform
from rollout.stage import Company

TESTS = Path(__file__).parents[1]

# ── browsers ──────────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class Watched:
    """A session that notes when it was opened and when it was asked for its evidence."""

    inner: Session
    deaths: list[float]
    opened: float = field(default_factory=time.monotonic)
    answered_after_death: int = 0

    @property
    def goal(self) -> str:
        return self.inner.goal

    async def observe(self) -> Observation:
        return await self.inner.observe()

    async def act(self, action: Action) -> Step:
        return await self.inner.act(action)

    async def evidence(self) -> Evidence:
        killed = any(death > self.opened for death in self.deaths)
        found = await self.inner.evidence()
        self.answered_after_death += killed
        return found

    async def snapshot(self) -> SnapshotId | None:
        return await self.inner.snapshot()

    async def close(self) -> None:
        await self.inner.close()


class OneBrowser:
    """MiniWoB++ on a single browser, so that whoever is open when it is killed was on it."""

    def __init__(self) -> None:
        self.deaths: list[float] = []
        self.sessions: list[Watched] = []
        self.capacity = 4
        self._environment = MiniwobEnvironment(
            blobs=MemoryBlobs(), options=MiniwobOptions(limits=PoolLimits(browsers=1, pages_per_browser=4))
        )

    def plan(self, number: int) -> RolloutPlan:
        names = ("miniwob/click-button-sequence", "miniwob/click-checkboxes", "miniwob/click-test-2")
        template = next(t for t in self._environment.templates if t.id == names[number % 3])
        return RolloutPlan(
            group_id=GroupId(f"g{number}"),
            task=Task(template=template, split=Split.TRAIN, index=number),
            start=Root(),
            group_size=4,
            depth=6,
            purpose=Purpose.TRAIN,
            seed=number,
        )

    async def open(self, task: Task, *, start: Start) -> Watched:
        session = Watched(inner=await self._environment.open(task, start=start), deaths=self.deaths)
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        await self._environment.close()

    def kill(self) -> None:
        """Kill -9 the browser; its session must be lost even where nothing was asked of it meanwhile."""
        for supervisor in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # one that is going of itself, or is gone and not yet reaped
                for browser in supervisor.children() if "cairn-browser" in supervisor.cmdline() else []:
                    browser.send_signal(signal.SIGKILL)
                    browser.wait(5)
                    self.deaths.append(time.monotonic())


@pytest.mark.browser
async def test_killed_browsers_cost_their_own_trajectories_and_leave_nothing_behind() -> None:
    with private_temporary_directory() as temporary:
        before = footprint(temporary=temporary)
        environment = OneBrowser()
        groups = await _play_while_killing(environment, kills=4, every=1.5)
        await environment.close()
        assert await leaks_since(before, temporary=temporary, patience_s=10.0) == []
    lost = [one for group in groups for one in group.lost]
    assert len(environment.deaths) >= 4
    assert sum(session.answered_after_death for session in environment.sessions) == 0
    assert {one.outcome for one in lost} == {Outcome.INFRASTRUCTURE_ERROR}
    assert of_groups(groups).total(Quantity.INFRASTRUCTURE_ERROR) == len(lost) > 0
    for group in groups:
        assert all(m.trajectory.ending is not Ending.INFRASTRUCTURE_ERROR for m in group.members)
        siblings = [m.trajectory.sibling for m in group.members]
        assert len(siblings) == len(set(siblings))


async def _play_while_killing(environment: OneBrowser, *, kills: int, every: float) -> list[ScoredGroup]:
    company = Company()
    episodes = replace(
        company.episodes,
        sessions=environment,
        engine=ScriptedEngine(uniform(1, 2, 3, 4, 5)),
        codec=ScriptedCodec(),
    )
    runner = RolloutRunner(
        groups=replace(company.groups, episodes=episodes, places=asyncio.Semaphore(4)), record=company.recorded.append
    )
    dice = random.Random(7)

    async def killer() -> None:
        while len(environment.deaths) < kills:
            await asyncio.sleep(every * dice.uniform(0.5, 1.5))
            await asyncio.to_thread(environment.kill)

    numbers = iter(range(10_000))
    async with asyncio.TaskGroup() as tasks:
        killing = tasks.create_task(killer())
        while not killing.done():
            await runner.round([environment.plan(next(numbers)) for _ in range(2)])
    return company.recorded


# ── the trainer ───────────────────────────────────────────────────────────────


def test_a_run_that_is_killed_again_and_again_goes_on_and_forgets_no_finished_trajectory(tmp_path: Path) -> None:
    """Three kills at random moments; every trajectory that was noted as over is in the store at the end."""
    folder, witness = tmp_path / "run", tmp_path / "witness"
    dice = random.Random(3)
    stored: Counter[str] = Counter()
    for _ in range(3):
        known = len(_lines(witness))
        with _training(folder, witness) as process:
            _wait_for(lambda known=known: len(_lines(witness)) > known or not _running(process))
            time.sleep(dice.uniform(0.0, 0.4))
            assert _running(process), "it came to its end before it was killed"
        stored, before = _stored(folder), stored
        assert before <= stored
    with _training(folder, witness) as process:
        assert process.wait(50) == 0
    assert read_progress(folder / "progress.json").phase is Phase.DONE
    assert not Counter(_lines(witness)) - _stored(folder)
    counted, run = of_groups(open_run(folder)), open_run(folder)
    assert run.ledger.total(Quantity.JUDGED) == counted.total(Quantity.JUDGED)
    RunLock(folder / "lock").close()  # nobody holds it


class _training:  # noqa: N801 - reads as what it does
    """A run of scripted parts in a process of its own, killed at the end of the block."""

    def __init__(self, folder: Path, witness: Path) -> None:
        paths = os.pathsep.join([str(TESTS), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "e2e" / "mortal.py"), str(folder), str(witness)],
            env={**os.environ, "PYTHONPATH": paths},
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()


def _running(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def _wait_for(what, *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "the run did not get on"
        time.sleep(0.01)


def _lines(witness: Path) -> list[str]:
    """Whole lines alone: the process may be writing the last one."""
    return witness.read_text().split("\n")[:-1] if witness.exists() else []


def _stored(folder: Path) -> Counter[str]:
    return Counter(_names(open_run(folder)))


def _names(groups) -> Iterator[str]:
    for group in groups:
        for one in (*group.members, *group.lost):
            if one.outcome is not Outcome.CANCELLED:
                yield f"{group.plan.group_id} {one.trajectory.sibling} {one.trajectory.attempt}"
