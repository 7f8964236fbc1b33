"""Opening at snapshots: verified, retried, handed down to the next store, or refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cairn.data.action import Click
from cairn.data.ids import ElementId, SnapshotId
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import FromSnapshot, Recorded, Root, Split, Task
from cairn.errors import ConfigError, SessionError, StoreError
from cairn.ports import ResumedSession, Session, SnapshotStore
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.sessions import SavableSession
from cairn.snapshots.shelf import Shelf
from cairn.testing.faults import Call, Fault
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from cairn.testing.scripted import COUNT, ScriptedEnvironment
from cairn.testing.session_contract import SESSION_CONTRACT, Check

PLUS, MINUS = Click(ElementId(1)), Click(ElementId(2))
TO_THREE = Task(template=COUNT, split=Split.TRAIN, index=2)


class Astray(ReplayStore):
    """Comes to another state in the openings that `wrong` counts, or fails in those that `failing` counts."""

    def __init__(
        self,
        sessions: ScriptedEnvironment,
        *,
        kind: StoreKind = StoreKind.NATIVE,
        wrong: Sequence[int] = (),
        failing: Sequence[int] = (),
    ) -> None:
        super().__init__(sessions)
        self.kind = kind
        self.openings = 0
        self._wrong = wrong
        self._failing = failing

    async def open(self, snapshot: Snapshot) -> Session:
        number, self.openings = self.openings, self.openings + 1
        if number in self._failing:
            raise SessionError("the container did not come up")
        session = await super().open(snapshot)
        if number in self._wrong:
            await session.act(MINUS)
        return session


class Stage:
    def __init__(self, folder: Path, stores: Callable[[ScriptedEnvironment], Sequence[SnapshotStore]]) -> None:
        self.blobs = MemoryBlobs()
        self.pages = ScriptedEnvironment(blobs=self.blobs)
        self.events = MemoryEvents()
        self.shelf = Shelf(folder / "shelf")
        self.environment = SnapshotEnvironment(
            self.pages, stores=stores(self.pages), shelf=self.shelf, blobs=self.blobs, events=self.events
        )

    async def saved(self, presses: int = 1) -> tuple[SnapshotId, str]:
        """A snapshot after so many presses, and the digest of its state."""
        session = await self.environment.open(TO_THREE, start=Root())
        for _ in range(presses):
            await session.observe()
            await session.act(PLUS)
        kept = await session.snapshot()
        digest = (await session.observe()).digest
        await session.close()
        return kept, digest

    async def opened(self, kept: SnapshotId) -> SavableSession:
        return await self.environment.open(TO_THREE, start=FromSnapshot(id=kept))


def replaying(pages: ScriptedEnvironment) -> Sequence[SnapshotStore]:
    return [ReplayStore(pages)]


@pytest.mark.parametrize("check", SESSION_CONTRACT, ids=lambda c: c.__name__)
async def test_the_session_contract(check: Check, tmp_path: Path) -> None:
    await check(Stage(tmp_path, replaying).environment, TO_THREE)


async def test_a_snapshot_says_what_led_to_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying)
    kept, digest = await stage.saved(2)
    found = stage.shelf.get(kept)
    assert [deed.action for deed in found.history] == [PLUS, PLUS]
    assert [deed.observation.elements[2].label for deed in found.history] == ["0", "1"]
    assert (found.step, found.seen.digest, found.goal, found.parent) == (2, digest, "count to 3", None)
    assert list(stage.shelf) == [found]


async def test_a_resumed_session_knows_what_was_done_before_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying)
    kept, digest = await stage.saved(1)
    first = await stage.opened(kept)
    assert isinstance(first, ResumedSession)
    assert (await first.observe()).digest == digest
    await first.act(PLUS)
    second = await stage.opened(await first.snapshot())
    assert [deed.action for deed in second.history] == [PLUS, PLUS]
    assert (await second.act(PLUS)).done
    chained = [snapshot for snapshot in stage.shelf if snapshot.parent == kept]
    assert [snapshot.step for snapshot in chained] == [2]


async def test_a_state_that_came_back_otherwise_is_never_used(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda pages: [Astray(pages, wrong=range(100))])
    kept, _ = await stage.saved()
    with pytest.raises(
        SessionError, match=r"could not be opened: native: the state that came back is not the saved one"
    ):
        await stage.opened(kept)
    assert stage.pages.live == 0
    assert stage.events.kinds() == ["snapshot_failed"] * 2


async def test_a_mismatch_is_tried_again_with_the_same_store(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda pages: [Astray(pages, wrong=[0])])
    kept, digest = await stage.saved()
    assert (await (await stage.opened(kept)).observe()).digest == digest
    assert stage.events.kinds() == ["snapshot_failed"]


@pytest.mark.parametrize("broken", ["wrong", "failing"])
async def test_after_two_failures_the_next_store_down_opens_it(tmp_path: Path, broken: str) -> None:
    always = range(100)

    def stores(pages: ScriptedEnvironment) -> Sequence[SnapshotStore]:
        first = Astray(pages, wrong=always) if broken == "wrong" else Astray(pages, failing=always)
        return [first, ReplayStore(pages)]

    stage = Stage(tmp_path, stores)
    kept, digest = await stage.saved()
    session = await stage.opened(kept)
    assert (await session.observe()).digest == digest
    assert stage.events.kinds() == ["snapshot_failed", "snapshot_failed", "snapshot_fallback"]
    again = stage.shelf.get(await session.snapshot())
    assert again.kind is StoreKind.REPLAY  # it can be saved by the store that opened it alone


async def test_the_picture_counts_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying)
    kept, _ = await stage.saved()
    found = stage.shelf.get(kept)
    other = await stage.environment.open(TO_THREE, start=Root())
    stage.shelf.put(replace(found, seen=replace(found.seen, image=(await other.observe()).image)))
    with pytest.raises(SessionError, match=r"its picture differs in 0\.\d% of the pixels"):
        await stage.opened(kept)


async def test_a_failure_while_replaying_closes_what_was_opened(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying)
    kept, _ = await stage.saved()
    stage.pages.faults = (Fault(call=Call.ACT, error=SessionError("the page is gone")),)
    with pytest.raises(SessionError, match="the page is gone"):
        await stage.opened(kept)
    assert stage.pages.live == 0


async def test_bad_requests_are_refused_in_one_sentence(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying)
    kept, _ = await stage.saved()
    with pytest.raises(ConfigError, match=r"there is no snapshot 'abc' in .*shelf"):
        await stage.opened(SnapshotId("abc"))
    with pytest.raises(ConfigError, match="no snapshot's id"):
        await stage.opened(SnapshotId("../../etc/passwd"))
    other = Task(template=COUNT, split=Split.TRAIN, index=3)
    with pytest.raises(ConfigError, match=rf"snapshot {kept} is of counter/count#2, not of counter/count#3"):
        await stage.environment.open(other, start=FromSnapshot(id=kept))
    seen = stage.shelf.get(kept).seen
    with pytest.raises(ConfigError, match="recorded state"):
        await stage.environment.open(TO_THREE, start=Recorded(goal="", observation=seen, expert=PLUS))
    session = await stage.environment.open(TO_THREE, start=Root())
    await session.close()
    with pytest.raises(SessionError, match="closed session cannot be saved"):
        await session.snapshot()


async def test_a_snapshot_of_a_store_that_is_not_there_names_both(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda pages: [Astray(pages)])
    kept, _ = await stage.saved()
    without = SnapshotEnvironment(
        stage.pages, stores=replaying(stage.pages), shelf=stage.shelf, blobs=None, events=stage.events
    )
    with pytest.raises(ConfigError, match="saved by the store native, and this run has replay"):
        await without.open(TO_THREE, start=FromSnapshot(id=kept))


async def test_a_damaged_entry_names_its_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying)
    kept, _ = await stage.saved()
    path = tmp_path / "shelf" / f"{kept}.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(StoreError, match=str(path)):
        stage.shelf.get(kept)
    stage.shelf.remove(kept)
    stage.shelf.remove(kept)
    assert list(stage.shelf) == []
