"""One episode of a MiniWoB++ task in one tab."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast

from cairn.data.action import Action, Answer, Finish
from cairn.data.action_json import dump_tagged, load_tagged
from cairn.data.ids import ImageId, SnapshotId
from cairn.data.observation import Observation
from cairn.data.trajectory import Evidence
from cairn.envs.chromium.commands import commanded
from cairn.envs.chromium.hand import Hand, wait_ms
from cairn.envs.chromium.observe import digest_of
from cairn.envs.chromium.page import Page, PageState
from cairn.envs.miniwob.pages import SCREEN, VIEWPORT_HEIGHT, VIEWPORT_WIDTH, expert_script
from cairn.errors import SessionError
from cairn.ports import BlobStore, Step

_LOOKS = 10  # at most, at a page that goes on loading
_REMINDERS = 2  # a page may go back and forth under the pointer for ever
_CLOSED = "the session is closed"
_Look = tuple[bytes, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What another session of the same page must know: the rest is in the page."""

    goal: str
    message: str
    expert_ready: bool
    stirred: bool
    performed: bytes  # as `export_state` tells of it
    page: PageState


class MiniwobSession:
    """A session over a borrowed tab, which `give_back` takes when it is over."""

    def __init__(
        self,
        *,
        page: Page,
        task: str,
        url: str,
        blobs: BlobStore | None,
        accessibility: Callable[[Page], Awaitable[str]] | None,
        give_back: Callable[[], Awaitable[None]],
    ) -> None:
        self._page = page
        self._task = task
        self._url = url
        self._blobs = blobs
        self._accessibility = accessibility
        self._give_back = give_back
        self._hand = Hand(page, screen=SCREEN)
        self._goal = ""
        self._message = ""
        self._expert_ready = False
        self._closed = False
        self._performed: list[tuple[Action, bool]] = []  # each with whether the expert was asked before it
        self._asked = False
        self._stirred = True  # a frame is due before the page looks as it will
        self._picture = b""
        self._image: ImageId | None = None

    async def begin(self, seed: int) -> None:
        """Load the page from scratch and start the episode that `seed` makes."""
        # where the session before left the pointer must not light anything up
        await self._page.hover(VIEWPORT_WIDTH - 1, VIEWPORT_HEIGHT - 1)
        await self._page.navigate(self._url)
        await self._page.requests_done()
        self._goal = str(await self._page.evaluate(f"__cairn.start({seed})"))

    def resume(self, state: SessionState) -> None:
        """Go on where another session of this page stopped, instead of `begin`."""
        self._goal, self._message = state.goal, state.message
        self._expert_ready, self._stirred = state.expert_ready, state.stirred
        self._performed = _performed(state.performed)

    def state(self) -> SessionState:
        """For `resume`."""
        self._check_open()
        return SessionState(
            goal=self._goal,
            message=self._message,
            expert_ready=self._expert_ready,
            stirred=self._stirred,
            performed=_told(self._performed),
            page=self._page.state(),
        )

    @property
    def goal(self) -> str:
        """The instruction, made concrete by the task's seed."""
        return self._goal

    async def observe(self) -> Observation:
        """What the page shows now; numbers its elements anew."""
        self._check_open()
        picture, url, state = await self._look(picture=self._blobs is not None)
        return Observation(
            image=self._stored(picture),
            elements=SCREEN.elements(state),
            accessibility=await self._accessibility(self._page) if self._accessibility is not None else "",
            url=url,
            digest=digest_of(state),
            message=self._message,
        )

    async def act(self, action: Action) -> Step:
        """Perform `action` and let the page's timers run until it is quiet."""
        self._check_open()
        self._performed.append((action, self._asked))
        self._asked = False
        self._message = await self._hand.perform(action)
        if isinstance(action, Answer | Finish):
            return Step(done=True)
        x, y = self._page.pointer
        result = await self._page.evaluate(f"__cairn.act({wait_ms(action)},{x},{y})")
        done, settled = cast("tuple[bool, bool]", result)
        self._stirred = not settled
        return Step(done=done, message=self._message)

    async def evidence(self) -> Evidence:
        """The page's own verdict, without the clock's share, and its elements."""
        self._check_open()
        _, _, state = await self._look(picture=False)
        done, reward = cast("tuple[bool, float]", await self._page.evaluate("__cairn.judged()"))
        return Evidence(done=done, raw_reward=float(reward), state=state)

    async def export_state(self) -> bytes:
        """The actions performed so far: under the page's clock and seed they lead to the same state again.

        Where the expert was asked, it will be asked again: some keep in mind what they have done.
        """
        self._check_open()
        return _told(self._performed)

    async def repeat(self, state: bytes) -> None:
        """Do what `export_state` told of, without pictures. The session has only just begun."""
        for action, asked in _performed(state):
            await self._look(picture=False)  # numbers the elements, as the observation before it did
            if asked:
                await self.expert_action()
            await self.act(action)

    async def snapshot(self) -> SnapshotId | None:
        """A page cannot be saved by itself."""
        return None

    async def script_errors(self) -> int:
        """Errors that the page has raised or logged since it was loaded."""
        self._check_open()
        return int(cast("float", await self._page.evaluate("__cairnWorld.errors()")))

    async def expert_action(self) -> Action | None:
        """What the scripted expert would do now; None where it knows nothing."""
        self._check_open()
        if not self._expert_ready:
            await self._page.evaluate(f"window.__cairnMemory={{}};window.__cairnNodes=[];{expert_script()}\n;0")
            self._expert_ready = True
        self._asked = True
        name = json.dumps(self._task)
        expert = f"window.__cairnExpert ? window.__cairnExpert({name}) : null"
        return await commanded(self._page, expert, screen=SCREEN)

    async def close(self) -> None:
        """Give the tab back. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._give_back()

    # ── inside ────────────────────────────────────────────────────────────────

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(_CLOSED)

    async def _look(self, *, picture: bool) -> _Look:
        """Picture, address and state, with every image loaded that the page has asked for, and the pointer felt.

        The frame comes first, because drawing is what makes a page ask; whatever arrives meanwhile makes us look again.
        Where an image that hovering asks for changes the page's layout, the browser may forget that the pointer is
        there: it is reminded.
        """
        if self._stirred:
            await self._page.drawn()
            self._stirred = False
        looks = reminded = 0
        while True:
            await self._page.requests_done()
            before = self._page.traffic
            taken = await self._drawn(picture=picture)
            x, y = self._page.pointer
            described = await self._page.evaluate(f"__cairn.look({x}, {y})")
            url, state, settled = cast("tuple[str, str, bool]", described)
            looks += 1
            if (self._page.traffic == before and (settled or reminded == _REMINDERS)) or looks == _LOOKS:
                return taken, url, state
            if self._page.traffic == before:
                reminded += 1
                await self._page.hover(x, y)

    async def _drawn(self, *, picture: bool) -> bytes:
        if picture:
            return await self._page.screenshot()
        await self._page.drawn()
        return b""

    def _stored(self, picture: bytes) -> ImageId | None:
        if self._blobs is not None and picture != self._picture:
            self._picture, self._image = picture, self._blobs.put(SCREEN.cut(picture))
        return self._image


def _told(performed: Sequence[tuple[Action, bool]]) -> bytes:
    return json.dumps([(dump_tagged(action), asked) for action, asked in performed]).encode()


def _performed(told: bytes) -> list[tuple[Action, bool]]:
    try:
        return [(load_tagged(tagged), bool(asked)) for tagged, asked in json.loads(told)]
    except (ValueError, KeyError, TypeError) as error:
        raise SessionError(f"the saved actions are damaged: {error}") from error
