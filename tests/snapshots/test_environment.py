"""Opening at snapshots: verified, retried, handed down to the next store, or refused."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cairn.data.action import Click
from cairn.data.history import Deed
from cairn.data.ids import ElementId, SnapshotId
from cairn.data.snapshot import Snapshot, StoreKind
from cairn.data.task import FromSnapshot, Recorded, Root, Split, Task
from cairn.errors import ConfigError, SessionError, StoreError
from cairn.ports import ResumedSession, Session
from cairn.snapshot_ports import SnapshotStore
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.sessions import SavableSession
from cairn.snapshots.shelf import Shelf
from cairn.testing.faults import Call, Fault
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from cairn.testing.scripted import COUNT, ScriptedEnvironment
from cairn.testing.session_contract import SESSION_CONTRACT, Check
from cairn.testing.snapshot_contract import SNAPSHOT_CONTRACT
from cairn.testing.snapshot_contract import Check as StoreCheck

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
    def __init__(
        self, folder: Path, stores: Callable[[ScriptedEnvironment], Sequence[SnapshotStore]], *, capacity: int = 16
    ) -> None:
        self.blobs = MemoryBlobs()
        self.pages = ScriptedEnvironment(blobs=self.blobs, capacity=capacity)
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


@pytest.mark.parametrize("check", SNAPSHOT_CONTRACT, ids=lambda c: c.__name__)
async def test_the_snapshot_contract(check: StoreCheck, tmp_path: Path) -> None:
    await check(ReplayStore(Stage(tmp_path, replaying).pages), TO_THREE)


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
    assert stage.events.kinds() == ["snapshot_saved"] + ["snapshot_failed"] * 2


async def test_a_mismatch_is_tried_again_with_the_same_store(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda pages: [Astray(pages, wrong=[0])])
    kept, digest = await stage.saved()
    assert (await (await stage.opened(kept)).observe()).digest == digest
    assert stage.events.kinds() == ["snapshot_saved", "snapshot_failed"]


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
    assert stage.events.kinds() == ["snapshot_saved", "snapshot_failed", "snapshot_failed", "snapshot_fallback"]
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
    with pytest.raises(ConfigError, match=rf"snapshot {kept} is of scripted/count#2, not of scripted/count#3"):
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


# ── who needs a snapshot, and how many sessions there may be ──────────────────


class Kept(ReplayStore):
    """Remembers what it keeps, and may refuse to."""

    def __init__(self, sessions: ScriptedEnvironment, *, kind: StoreKind = StoreKind.NATIVE) -> None:
        super().__init__(sessions)
        self.kind = kind
        self.saved: set[SnapshotId] = set()
        self.refuses = False

    async def save(self, session: Session, snapshot: SnapshotId, *, history: Sequence[Deed]) -> int:
        if self.refuses:
            raise SessionError("the disk is full")
        self.saved.add(snapshot)
        return 10

    async def kept(self) -> Sequence[SnapshotId]:
        return tuple(self.saved)

    async def remove(self, snapshot: SnapshotId) -> None:
        self.saved.discard(snapshot)


def two_kept(stage_of: list[Kept]) -> Callable[[ScriptedEnvironment], Sequence[SnapshotStore]]:
    def stores(pages: ScriptedEnvironment) -> Sequence[SnapshotStore]:
        stage_of[:] = [Kept(pages, kind=StoreKind.CRIU), Kept(pages)]
        return stage_of

    return stores


async def test_the_stores_below_keep_the_state_too_so_that_they_can_open_it(tmp_path: Path) -> None:
    kept_by: list[Kept] = []
    stage = Stage(tmp_path, two_kept(kept_by))
    kept, _ = await stage.saved()
    assert [store.saved for store in kept_by] == [{kept}, {kept}]
    assert stage.shelf.get(kept).size == 20


async def test_a_save_that_fails_leaves_nothing_and_the_session_goes_on(tmp_path: Path) -> None:
    kept_by: list[Kept] = []
    stage = Stage(tmp_path, two_kept(kept_by))
    kept_by[1].refuses = True
    session = await stage.environment.open(TO_THREE, start=Root())
    with pytest.raises(SessionError, match="disk is full"):
        await session.snapshot()
    assert kept_by[0].saved == set()
    assert list(stage.shelf) == []
    await session.observe()
    await session.act(PLUS)


async def test_a_snapshot_lives_until_its_last_user_lets_go(tmp_path: Path) -> None:
    kept_by: list[Kept] = []
    stage = Stage(tmp_path, two_kept(kept_by))
    kept, _ = await stage.saved()
    stage.environment.retain(kept)
    await stage.environment.release(kept)
    assert kept in stage.shelf
    await stage.environment.release(kept)
    assert kept not in stage.shelf
    assert kept_by[0].saved == kept_by[1].saved == set()
    with pytest.raises(ConfigError, match="there is no snapshot"):
        stage.environment.retain(kept)


async def test_a_snapshot_that_is_let_go_while_it_is_opened_is_opened_first(tmp_path: Path) -> None:
    kept_by: list[Kept] = []
    stage = Stage(tmp_path, two_kept(kept_by), capacity=1)
    kept, digest = await stage.saved()
    blocking = await stage.environment.open(TO_THREE, start=Root())
    opening = asyncio.create_task(stage.opened(kept))
    await asyncio.sleep(0)
    await stage.environment.release(kept)
    assert kept in kept_by[0].saved
    await blocking.close()
    assert (await (await opening).observe()).digest == digest
    assert kept not in kept_by[0].saved


async def test_what_a_killed_process_left_without_an_entry_is_collected(tmp_path: Path) -> None:
    kept_by: list[Kept] = []
    stage = Stage(tmp_path, two_kept(kept_by))
    kept, _ = await stage.saved()
    kept_by[0].saved.add(SnapshotId("lost"))
    assert await stage.environment.collect() == 1
    assert kept_by[0].saved == {kept}


async def test_an_opening_waits_for_a_free_place(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaying, capacity=2)
    kept, _ = await stage.saved()
    first, second = await stage.opened(kept), await stage.environment.open(TO_THREE, start=Root())
    third = asyncio.create_task(stage.opened(kept))
    await asyncio.sleep(0)
    assert not third.done()
    assert stage.pages.live == 2
    await first.close()
    await first.close()  # gives back one place, not two
    waiting = asyncio.create_task(stage.environment.open(TO_THREE, start=Root()))
    await third
    await asyncio.sleep(0)
    assert not waiting.done()
    await second.close()
    await (await waiting).close()


async def test_an_opening_that_fails_gives_its_place_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda pages: [Astray(pages, failing=range(2))], capacity=1)
    kept, _ = await stage.saved()
    with pytest.raises(SessionError):
        await stage.opened(kept)
    await (await stage.opened(kept)).close()


class Noisy(ReplayStore):
    """Its pages raise an error when they are opened again."""

    async def open(self, snapshot: Snapshot) -> Session:
        session = await super().open(snapshot)
        return Watched(session, errors=1)


class Watched(SavableSession):
    def __init__(self, inner: Session, *, errors: int) -> None:
        super().__init__(inner=inner, before=(), save=never)
        self.errors = errors

    async def script_errors(self) -> int:
        return self.errors


async def never(session: SavableSession) -> SnapshotId:
    raise AssertionError


async def test_a_page_that_raises_errors_when_it_comes_back_is_not_the_saved_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda pages: [Noisy(pages)])
    kept, _ = await stage.saved()
    with pytest.raises(SessionError, match="its scripts had raised 0 errors then, and 1 now"):
        await stage.opened(kept)
