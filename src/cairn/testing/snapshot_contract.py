"""What every snapshot store must do: parametrise one test over `SNAPSHOT_CONTRACT`.

`task` is one whose scripted expert needs at least three steps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count

from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.snapshot import Snapshot
from cairn.data.task import Task
from cairn.errors import InvariantError
from cairn.ports import ExpertSession, Session
from cairn.snapshot_ports import SnapshotStore

Check = Callable[[SnapshotStore, Task], Awaitable[None]]

_numbers = count()
_MOST_STEPS = 60


@dataclass(slots=True, kw_only=True)
class _Played:
    """A session, and what was done in it since the root."""

    session: Session
    deeds: tuple[Deed, ...] = ()

    async def step(self) -> bool:
        """One of the expert's; whether the episode is over."""
        seen = await self.session.observe()
        action = await self.session.expert_action() if isinstance(self.session, ExpertSession) else None
        if action is None:
            raise InvariantError("the contract needs a task that a scripted expert solves")
        self.deeds = (*self.deeds, Deed(observation=seen, action=action))
        return (await self.session.act(action)).done

    async def reward(self) -> float:
        """What the expert comes to when it goes on to the end."""
        for _ in range(_MOST_STEPS):
            if await self.step():
                break
        return (await self.session.evidence()).raw_reward


async def _played(store: SnapshotStore, task: Task, *, steps: int) -> _Played:
    played = _Played(session=await store.open_root(task))
    for _ in range(steps):
        assert not await played.step(), "the contract needs a task of at least three steps"
    return played


async def _saved(store: SnapshotStore, task: Task, played: _Played, *, parent: Snapshot | None = None) -> Snapshot:
    wanted = SnapshotId(f"contract{next(_numbers)}")
    seen = await played.session.observe()
    return Snapshot(
        id=wanted,
        task=task,
        goal=played.session.goal,
        history=played.deeds,
        seen=seen,
        script_errors=0,
        kind=store.kind,
        parent=parent.id if parent else None,
        size=await store.save(played.session, wanted, history=played.deeds),
        build=store.build,
    )


async def _opened(store: SnapshotStore, snapshot: Snapshot) -> _Played:
    return _Played(session=await store.open(snapshot), deeds=snapshot.history)


def _assert_same(saved: Observation, seen: Observation) -> None:
    assert (seen.digest, seen.elements, seen.image) == (saved.digest, saved.elements, saved.image)


async def a_snapshot_opens_in_the_state_that_was_saved(store: SnapshotStore, task: Task) -> None:
    """The same elements, structure and picture, and the same goal."""
    played = await _played(store, task, steps=2)
    snapshot = await _saved(store, task, played)
    opened = await _opened(store, snapshot)
    assert opened.session.goal == played.session.goal
    _assert_same(snapshot.seen, await opened.session.observe())
    assert await opened.reward() == 1.0
    await opened.session.close()
    await played.session.close()


async def a_session_that_was_saved_goes_on_undisturbed(store: SnapshotStore, task: Task) -> None:
    """It shows what it showed, and its episode can be played to the end."""
    played = await _played(store, task, steps=1)
    snapshot = await _saved(store, task, played)
    _assert_same(snapshot.seen, await played.session.observe())
    assert await played.reward() == 1.0
    await played.session.close()


async def a_snapshot_outlives_its_session(store: SnapshotStore, task: Task) -> None:
    """It may be opened when the session that was saved is over and closed."""
    played = await _played(store, task, steps=1)
    snapshot = await _saved(store, task, played)
    await played.reward()
    await played.session.close()
    opened = await _opened(store, snapshot)
    _assert_same(snapshot.seen, await opened.session.observe())
    await opened.session.close()


async def the_root_can_be_saved(store: SnapshotStore, task: Task) -> None:
    """A state in which nothing was done yet is a state."""
    played = await _played(store, task, steps=0)
    snapshot = await _saved(store, task, played)
    opened = await _opened(store, snapshot)
    _assert_same(snapshot.seen, await opened.session.observe())
    assert await opened.reward() == 1.0
    await opened.session.close()
    await played.session.close()


async def branches_of_one_state_do_not_meet(store: SnapshotStore, task: Task) -> None:
    """Opened several times at once; what one does shows in no other, nor in the session that was saved."""
    played = await _played(store, task, steps=1)
    snapshot = await _saved(store, task, played)
    async with asyncio.TaskGroup() as group:
        opening = [group.create_task(_opened(store, snapshot)) for _ in range(3)]
    first, *others = [one.result() for one in opening]
    await first.step()
    for other in (*others, played):
        _assert_same(snapshot.seen, await other.session.observe())
    assert await first.reward() == await others[0].reward() == 1.0
    _assert_same(snapshot.seen, await others[1].session.observe())
    for one in (first, *others, played):
        await one.session.close()


async def snapshots_form_chains(store: SnapshotStore, task: Task) -> None:
    """A session that was opened at a snapshot is saved like any other."""
    played = await _played(store, task, steps=1)
    first = await _saved(store, task, played)
    await played.session.close()
    again = await _opened(store, first)
    await again.step()
    second = await _saved(store, task, again, parent=first)
    await again.session.close()
    last = await _opened(store, second)
    _assert_same(second.seen, await last.session.observe())
    assert await last.reward() == 1.0
    await last.session.close()


async def what_is_removed_is_kept_no_more(store: SnapshotStore, task: Task) -> None:
    """`kept` names a snapshot from its save to its removal, if the store keeps anything at all; others stay."""
    played = await _played(store, task, steps=1)
    one, other = await _saved(store, task, played), await _saved(store, task, played)
    kept = set(await store.kept())
    assert kept.issuperset({one.id, other.id}) or one.size == other.size == 0
    await store.remove(one.id)
    await store.remove(one.id)
    assert set(await store.kept()) == kept - {one.id}
    opened = await _opened(store, other)
    _assert_same(other.seen, await opened.session.observe())
    await opened.session.close()
    await played.session.close()


SNAPSHOT_CONTRACT: Sequence[Check] = (
    a_snapshot_opens_in_the_state_that_was_saved,
    a_session_that_was_saved_goes_on_undisturbed,
    a_snapshot_outlives_its_session,
    the_root_can_be_saved,
    branches_of_one_state_do_not_meet,
    snapshots_form_chains,
    what_is_removed_is_kept_no_more,
)
