"""One episode on a page of states in one tab."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter

from cairn.data.action import Action, Answer, Finish
from cairn.data.ids import ImageId, SnapshotId
from cairn.data.observation import Observation
from cairn.data.trajectory import Evidence
from cairn.envs.chromium.browser import Browser, Outside
from cairn.envs.chromium.commands import commanded
from cairn.envs.chromium.contained import read_left
from cairn.envs.chromium.hand import Hand, wait_ms
from cairn.envs.chromium.observe import Screen, digest_of
from cairn.envs.chromium.page import Page, PageState
from cairn.errors import SessionError
from cairn.ports import BlobStore, Step

SCREEN = Screen(width=240, height=160)
SITE = Path(str(files("cairn.envs.states"))) / "site"
"""The pages; they need an http origin."""

_SETTLE_MS = 30
_LONGEST_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What another session of the same page must know: the rest is in the page."""

    step: int
    goal: str
    message: str
    page: PageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What `import_state` can bring about again."""

    step: int
    page: dict[str, object]  # as page.js tells it


_EXPORTED = TypeAdapter(Exported)


class StatesSession:
    """A session over a borrowed tab, which `give_back` takes when it is over."""

    def __init__(
        self, *, page: Page, url: str, blobs: BlobStore | None, give_back: Callable[[], Awaitable[None]]
    ) -> None:
        self._page = page
        self._url = url
        self._blobs = blobs
        self._give_back = give_back
        self._hand = Hand(page, screen=SCREEN)
        self._goal = ""
        self._message = ""
        self._step = 0
        self._closed = False

    async def begin(self) -> None:
        """Load the page."""
        await self._page.hover(SCREEN.width - 1, SCREEN.height - 1)
        await self._page.navigate(self._url)
        self._goal = str(await self._page.evaluate("__cairn.goal()"))

    def resume(self, state: SessionState) -> None:
        """Go on where another session of this page stopped, instead of `begin`."""
        self._step, self._goal, self._message = state.step, state.goal, state.message

    def state(self) -> SessionState:
        """For `resume`."""
        self._check_open()
        return SessionState(step=self._step, goal=self._goal, message=self._message, page=self._page.state())

    @property
    def goal(self) -> str:
        """What is to be done, and that it is to be checked."""
        return self._goal

    async def observe(self) -> Observation:
        """What the page shows now; numbers its elements anew."""
        self._check_open()
        await self._page.drawn()
        image = await self._picture()
        state = str(await self._page.evaluate("__cairn.state()"))
        return Observation(
            image=image,
            elements=SCREEN.elements(state),
            accessibility="",
            url=self._url.partition("?")[2],
            digest=digest_of(state),
            message=self._message,
        )

    async def act(self, action: Action) -> Step:
        """Perform `action` and let what the page begins come to its end."""
        self._check_open()
        self._step += 1
        self._message = await self._hand.perform(action)
        if isinstance(action, Answer | Finish):
            return Step(done=True)
        ms = min(_LONGEST_WAIT_MS, wait_ms(action)) or _SETTLE_MS
        return Step(done=bool(await self._page.evaluate(f"__cairn.act({ms})")), message=self._message)

    async def evidence(self) -> Evidence:
        """The page's own verdict: 1 where its state is what it should be; else what is wrong with it."""
        self._check_open()
        done, reward, complaint = cast("tuple[bool, float, str]", await self._page.evaluate("__cairn.judged()"))
        return Evidence(done=done, raw_reward=float(reward), state=json.dumps({"complaint": complaint}))

    async def export_state(self) -> bytes:
        """What can be told of the page from outside: storage, cookies, fields, focus, how far it is scrolled."""
        self._check_open()
        told = cast("dict[str, object]", await self._page.evaluate("__cairn.exported()"))
        return _EXPORTED.dump_json(Exported(step=self._step, page=told))

    async def import_state(self, state: bytes) -> None:
        """Bring about what `export_state` told of. The session has only just begun."""
        exported = read_left(_EXPORTED, state)
        await self._page.evaluate(f"__cairn.imported({json.dumps(exported.page)})")
        self._step = exported.step

    async def snapshot(self) -> SnapshotId | None:
        """A page cannot be saved by itself."""
        return None

    async def expert_action(self) -> Action | None:
        """The next step of the page's own plan; None where that is at its end."""
        self._check_open()
        return await commanded(self._page, f"__cairn.expert({self._step})", screen=SCREEN)

    async def close(self) -> None:
        """Give the tab back. Idempotent."""
        if not self._closed:
            self._closed = True
            self._page.broken = True  # its storage is no other session's affair
            await self._give_back()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError("the session is closed")

    async def _picture(self) -> ImageId | None:
        if self._blobs is None:
            return None
        return self._blobs.put(SCREEN.cut(await self._page.screenshot()))


async def new_page(browser: Browser, *, downloads: Path) -> Page:
    """A tab for one session; `downloads` is a folder, as the browser sees it."""
    script = files("cairn.envs.states").joinpath("page.js").read_text(encoding="utf-8")
    outside = Outside(downloads=downloads)
    return await browser.new_page(width=SCREEN.width, height=SCREEN.height, script=script, outside=outside)


def page_url(name: str, seed: int, *, origin: str) -> str:
    """The page of a property."""
    return f"{origin}/state.html?{name}&{seed}"
