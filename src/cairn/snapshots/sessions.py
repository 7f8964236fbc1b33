"""Sessions that remember what was done, so that they can be saved at any step."""

from collections.abc import Awaitable, Callable, Sequence

from cairn.data.action import Action
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.trajectory import Evidence
from cairn.errors import SessionError
from cairn.ports import ExpertSession, Session, Step

Save = Callable[["SavableSession"], Awaitable[SnapshotId]]
"""Keeps the state that a session is in."""


class SavableSession:
    """A session around another one, which `save` knows how to keep."""

    def __init__(self, *, inner: Session, before: Sequence[Deed], save: Save, seen: Observation | None = None) -> None:
        """`before` is what was done before `inner` began; `seen` what it shows, where that is known."""
        self.inner = inner
        self._before = tuple(before)
        self._deeds: list[Deed] = []
        self._save = save
        self._seen = seen
        self._closed = False
        self._on_close: Callable[[], None] = _nothing

    @property
    def goal(self) -> str:
        return self.inner.goal

    @property
    def history(self) -> Sequence[Deed]:
        """What was done before this session began."""
        return self._before

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """Everything from the task's root to here."""
        return (*self._before, *self._deeds)

    async def observe(self) -> Observation:
        self._seen = await self.inner.observe()
        return self._seen

    async def act(self, action: Action) -> Step:
        seen = self._seen or await self.observe()
        step = await self.inner.act(action)
        self._deeds.append(Deed(observation=seen, action=action))
        self._seen = None
        return step

    async def evidence(self) -> Evidence:
        return await self.inner.evidence()

    async def snapshot(self) -> SnapshotId:
        """Save the present state. The session goes on as if nothing had been."""
        if self._closed:
            raise SessionError("a closed session cannot be saved: save it before `close`")
        return await self._save(self)

    def on_close(self, call: Callable[[], None]) -> None:
        """Call this once, when the session is over."""
        self._on_close = call

    async def close(self) -> None:
        self._closed = True
        call, self._on_close = self._on_close, _nothing
        try:
            await self.inner.close()
        finally:
            call()


class SavableExpertSession(SavableSession):
    """One that knows how its task is solved."""

    async def expert_action(self) -> Action | None:
        if not isinstance(self.inner, ExpertSession):
            return None
        return await self.inner.expert_action()


def _nothing() -> None:
    return


def savable(inner: Session, *, before: Sequence[Deed], save: Save, seen: Observation | None = None) -> SavableSession:
    """The session around `inner`, an expert's where that is one."""
    kind = SavableExpertSession if isinstance(inner, ExpertSession) else SavableSession
    return kind(inner=inner, before=before, save=save, seen=seen)
