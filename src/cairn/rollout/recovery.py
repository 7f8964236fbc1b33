"""Error recovery: from a state on an expert's way something wrong is done, and a way back is found by trying.

InfiGUI-R1 (arXiv:2504.14239) learns at two states of each such mistake: the one that it leads to, where escaping is
right, and the one that the escape leads back to, where what was right before is right again.
"""

import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from cairn.data.action import Action
from cairn.data.checkpoint import Checkpoint
from cairn.data.escapes import Escape, escapes, needs_focus, same_page
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.task import Root, Task
from cairn.errors import BoundaryError, SessionError
from cairn.ports import Codec, ExpertSession, Session, SessionFactory
from cairn.rollout.waiting import bounded

_OPENING = 120.0  # seconds, waiting for a free place included
_STEP = 60.0  # seconds
_PRIMITIVES = 4  # that one action may take


class Rejection(StrEnum):
    """Why a wrong action makes no scenario."""

    ENDED = "ended"  # it ended the episode
    UNCHANGED = "unchanged"  # the page looks as before
    PROGRESS = "progress"  # it was not wrong: from there the expert has less left to do than before
    NO_ESCAPE = "no_escape"  # nothing that was tried brings the page back
    WAY_LOST = "way_lost"  # the page is back, and what solved the task before does so no more
    UNSTEADY = "unsteady"  # done again, it leads somewhere else
    FAILED = "failed"  # the session, or its snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Something wrong to do at a saved state of an expert's way."""

    checkpoint: Checkpoint
    wrong: Action
    rest: Sequence[Action]  # what the expert did from there to success, primitives of the codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A mistake with the way back from it, verified in a session of its own."""

    mistake: Mistake
    escape: tuple[Deed, ...]  # at least one; each with the page that it was done on, the first one after the mistake
    back: Observation  # after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescuer:
    """Makes scenarios of mistakes. Every session begins at the mistake's snapshot, and none outlives the call."""

    sessions: SessionFactory
    codec: Codec
    most: int = 8  # escapes tried for a mistake

    async def scenario(self, mistake: Mistake) -> Scenario | Rejection:
        """What came of it. What fails outside is a rejection, never raised."""
        try:
            async with self._erred(mistake) as (session, after):
                if isinstance(after, Rejection):
                    return after
                if await self._progressed(session, mistake):
                    return Rejection.PROGRESS
            return await self._rescued(mistake, after)
        except BoundaryError:
            return Rejection.FAILED

    async def _rescued(self, mistake: Mistake, after: Observation) -> Scenario | Rejection:
        before = mistake.checkpoint.observation
        tried, verdict = 0, Rejection.NO_ESCAPE
        for escape in escapes(before, mistake.wrong, after):
            if tried == self.most:
                break
            if not self._can_say(mistake, escape[0], after):
                continue
            tried += 1
            async with self._erred(mistake) as (session, again):
                if isinstance(again, Rejection) or again.digest != after.digest:
                    return Rejection.UNSTEADY
                found = await self._escaped(session, mistake, escape, again)
                if found is not None and await _solves(session, mistake.rest):
                    return found
                if found is not None:
                    verdict = Rejection.WAY_LOST
        return verdict

    @asynccontextmanager
    async def _erred(self, mistake: Mistake) -> AsyncGenerator[tuple[Session, Observation | Rejection]]:
        """A session in which the wrong thing was done, and what it shows."""
        checkpoint = mistake.checkpoint
        async with bounded(SessionError, f"open {checkpoint.task.id}", seconds=_OPENING):
            session = await self.sessions.open(checkpoint.task, start=checkpoint.resumed())
        async with _closing(session):
            before = await _seen(session)
            if await _over(session, mistake.wrong):
                yield session, Rejection.ENDED
                return
            after = await _seen(session)
            focus = needs_focus(checkpoint.expert)
            yield session, Rejection.UNCHANGED if same_page(before, after, focus=focus) else after

    async def _progressed(self, session: Session, mistake: Mistake) -> bool:
        """Whether the expert solves the task from here in fewer actions than it would have taken before.

        Boxes may be ticked in any order: that one is not the expert's next one makes it no mistake.
        """
        if not isinstance(session, ExpertSession):
            return False
        for _ in range(len(mistake.rest) - 1):
            seen = await _seen(session)
            async with bounded(SessionError, "expert", seconds=_STEP):
                wanted = await session.expert_action()
            if wanted is None:
                return False
            if await _over(session, self.codec.primitive(wanted, seen)):
                return await _solved(session)
        return False

    async def _escaped(self, session: Session, mistake: Mistake, escape: Escape, after: Observation) -> Scenario | None:
        """The scenario, where the escape leads back."""
        deeds, seen = list[Deed](), after
        for action in escape:
            for _ in range(_PRIMITIVES):
                step = self.codec.primitive(action, seen)
                if not self._can_say(mistake, step, seen) or await _over(session, step):
                    return None
                deeds.append(Deed(observation=seen, action=step))
                seen = await _seen(session)
                if step == action:
                    break
        focus = needs_focus(mistake.checkpoint.expert)
        if not same_page(mistake.checkpoint.observation, seen, focus=focus):
            return None
        return Scenario(mistake=mistake, escape=tuple(deeds), back=seen)

    def _can_say(self, mistake: Mistake, action: Action, seen: Observation) -> bool:
        goal = seen.instruction(mistake.checkpoint.goal)
        return len(self.codec.answers(goal, self.codec.primitive(action, seen), seen)) > 0


async def save_way(
    sessions: SessionFactory, task: Task, *, way: Sequence[Deed], wanted: Collection[int]
) -> Mapping[int, SnapshotId]:
    """Go an expert's way again, and save the states before the wanted steps of it.

    Raises `SessionError` where the way is another one now, or the session cannot be saved.
    """
    kept: dict[int, SnapshotId] = {}
    last = max(wanted)
    async with bounded(SessionError, f"open {task.id}", seconds=_OPENING):
        session = await sessions.open(task, start=Root())
    async with _closing(session):
        for step, deed in enumerate(way[: last + 1]):
            seen = await _seen(session)
            if seen.digest != deed.observation.digest:
                raise SessionError(f"{task.id}: at step {step} the page is not the recorded one")
            if step in wanted:
                async with bounded(SessionError, f"save {task.id}", seconds=_STEP):
                    saved = await session.snapshot()
                if saved is None:
                    raise SessionError(f"{task.id}: the session cannot be saved")
                kept[step] = saved
            if step < last and await _over(session, deed.action):
                raise SessionError(f"{task.id}: the episode was over at step {step}")
    return kept


async def _solves(session: Session, actions: Sequence[Action]) -> bool:
    for action in actions:
        await _seen(session)  # numbers the elements
        if await _over(session, action):
            break
    return await _solved(session)


async def _solved(session: Session) -> bool:
    async with bounded(SessionError, "evidence", seconds=_STEP):
        evidence = await session.evidence()
    return evidence.done and evidence.raw_reward >= 1.0


async def _seen(session: Session) -> Observation:
    async with bounded(SessionError, "observe", seconds=_STEP):
        return await session.observe()


async def _over(session: Session, action: Action) -> bool:
    async with bounded(SessionError, "act", seconds=_STEP):
        return (await session.act(action)).done


@asynccontextmanager
async def _closing(session: Session) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(SessionError):
            async with bounded(SessionError, "close", seconds=_STEP):
                await session.close()
