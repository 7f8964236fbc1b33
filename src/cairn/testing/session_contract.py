"""What every session must do. Parametrise one test over `SESSION_CONTRACT`: `await check(sessions, task)`."""

from collections.abc import Awaitable, Callable

from cairn.data.action import Finish, Invalid
from cairn.data.task import FromSnapshot, Root, Task
from cairn.ports import ExpertSession, SessionFactory

Check = Callable[[SessionFactory, Task], Awaitable[None]]


async def close_is_idempotent(sessions: SessionFactory, task: Task) -> None:
    """Closing twice is closing once."""
    session = await sessions.open(task, start=Root())
    await session.close()
    await session.close()


async def a_closed_session_gives_its_place_back(sessions: SessionFactory, task: Task) -> None:
    """More sessions than there are places can be opened one after another."""
    for _ in range(sessions.capacity + 1):
        session = await sessions.open(task, start=Root())
        await session.close()


async def a_seed_fixes_goal_and_page(sessions: SessionFactory, task: Task) -> None:
    """Two sessions of one task start alike."""
    seen: list[tuple[str, str]] = []
    for _ in range(2):
        session = await sessions.open(task, start=Root())
        seen.append((session.goal, (await session.observe()).digest))
        await session.close()
    assert seen[0] == seen[1]


async def observing_changes_nothing(sessions: SessionFactory, task: Task) -> None:
    """Two observations in a row are equal."""
    session = await sessions.open(task, start=Root())
    assert await session.observe() == await session.observe()
    await session.close()


async def elements_are_numbered_from_one(sessions: SessionFactory, task: Task) -> None:
    """Ids run from 1 in order, so that an id finds its element."""
    session = await sessions.open(task, start=Root())
    seen = await session.observe()
    assert [e.id for e in seen.elements] == list(range(1, len(seen.elements) + 1))
    await session.close()


async def an_invalid_action_is_a_message(sessions: SessionFactory, task: Task) -> None:
    """What cannot be performed is told to the agent, and nothing else happens."""
    session = await sessions.open(task, start=Root())
    before = (await session.observe()).digest
    step = await session.act(Invalid(text="?", reason="that is no action"))
    assert not step.done
    assert step.message
    assert (await session.observe()).digest == before
    await session.close()


async def finishing_ends_the_episode(sessions: SessionFactory, task: Task) -> None:
    """An agent that declares itself done is done, and is judged."""
    session = await sessions.open(task, start=Root())
    step = await session.act(Finish())
    assert step.done
    assert (await session.evidence()).raw_reward != 1.0
    await session.close()


async def a_snapshot_restores_what_was_seen(sessions: SessionFactory, task: Task) -> None:
    """A session opened at a snapshot shows what the saved one showed; passes where none can be saved."""
    first = await sessions.open(task, start=Root())
    if isinstance(first, ExpertSession):
        action = await first.expert_action()
        if action is not None:
            await first.act(action)
    kept = await first.snapshot()
    seen = await first.observe()
    await first.close()
    if kept is None:
        return
    again = await sessions.open(task, start=FromSnapshot(id=kept))
    assert (await again.observe()).digest == seen.digest
    await again.close()


SESSION_CONTRACT: tuple[Check, ...] = (
    close_is_idempotent,
    a_closed_session_gives_its_place_back,
    a_seed_fixes_goal_and_page,
    observing_changes_nothing,
    elements_are_numbered_from_one,
    an_invalid_action_is_a_message,
    finishing_ends_the_episode,
    a_snapshot_restores_what_was_seen,
)
