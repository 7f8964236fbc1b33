"""MiniWoB++ in headless Chromium, as an environment."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from cairn.data.ids import TemplateId
from cairn.data.observation import Box
from cairn.data.task import Root, Start, Task, Template
from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.discovery import Channel, find_browser
from cairn.envs.chromium.page import Page
from cairn.envs.chromium.pool import BrowserPool, PoolLimits
from cairn.envs.miniwob.accessibility import accessibility_tree
from cairn.envs.miniwob.experts.tasks import EXPERT_TASKS
from cairn.envs.miniwob.pages import (
    VIEWPORT_HEIGHT,
    VIEWPORT_WIDTH,
    page_script,
    page_url,
    registered_tasks,
    target_url,
)
from cairn.envs.miniwob.session import MiniwobSession
from cairn.envs.opening import once_ready, require_root
from cairn.errors import ConfigError
from cairn.ports import BlobStore
from cairn.scratch import make_root

NAME = "miniwob"

# Twice what an expert needs at most, where that exceeds the default.
_DEFAULT_TURNS = 12
_TURNS = {
    "book-flight": 30, "book-flight-nodelay": 30, "click-checkboxes-large": 24, "click-checkboxes-soft": 16,
    "click-checkboxes-transfer": 16, "click-collapsible-2": 20, "click-collapsible-2-nodelay": 20,
    "click-scroll-list": 16, "click-tab-2-hard": 16, "choose-date": 24, "choose-date-medium": 16,
    "choose-date-nodelay": 24, "choose-list": 16,
    "drag-cube": 20, "drag-items-grid": 24, "drag-sort-numbers": 20, "form-sequence-3": 16, "generate-number": 20,
    "guess-number": 24, "hot-cold": 30, "multi-layouts": 16, "multi-orderings": 16, "navigate-tree": 20,
    "number-checkboxes": 40, "order-food": 20, "phone-book": 20, "search-engine": 16, "simple-algebra": 12,
    "sign-agreement": 24, "social-media-all": 20, "social-media-some": 20, "stock-market": 40,
    "terminal": 20, "tic-tac-toe": 12, "use-spinner": 24, "visual-addition": 12,
}  # fmt: skip


GiveBack = Callable[[], Awaitable[None]]
"""Ends the use of a tab."""


async def keep() -> None:
    """Leave the tab as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniwobOptions:
    """What is observed, and the browsers that show it."""

    limits: PoolLimits = field(default_factory=PoolLimits)
    accessibility: bool = False  # costs several round trips an observation
    channel: Channel | None = None
    executable: Path | None = None


class MiniwobEnvironment:
    """All registered MiniWoB++ tasks. Opens the first browser when the first session is asked for."""

    def __init__(self, *, blobs: BlobStore | None, options: MiniwobOptions | None = None) -> None:
        """Screenshots go to `blobs`; without it observations have none."""
        self._blobs = blobs
        self._options = options or MiniwobOptions()
        self._pool: BrowserPool | None = None
        self._scratch: Path | None = None

    @property
    def name(self) -> str:
        """As recipes and task ids spell it."""
        return NAME

    @property
    def capacity(self) -> int:
        """Sessions at once."""
        return self._options.limits.capacity

    @property
    def templates(self) -> Sequence[Template]:
        """One per task."""
        return _templates()

    def has_expert(self, template: Template) -> bool:
        """Whether a script solves it."""
        return _page_name(template) in EXPERT_TASKS

    async def open(self, task: Task, *, start: Start) -> MiniwobSession:
        """Start an episode on a page loaded from scratch, once a place is free."""
        require_root(NAME, start)
        name = _page_name(task.template)
        if name not in registered_tasks():
            raise ConfigError(f"{NAME} has no task {name!r}; `cairn env tasks {NAME}` lists them")
        return await self._opened(name, url=page_url(name), seed=task.seed)

    @property
    def uncovered(self) -> Sequence[str]:
        """What an exported state leaves out: nothing, for pages have no time, network or storage but their own."""
        return ()

    async def import_state(self, task: Task, state: bytes) -> MiniwobSession:
        """A session that has done again, without pictures, what another one did."""
        session = await self.open(task, start=Root())
        return await once_ready(session, session.repeat(state))

    async def open_target(self, target: Box) -> MiniwobSession:
        """A page for proving coordinates; see `CalibratedEnvironment`."""
        return await self._opened("target", url=target_url(target), seed=0)

    async def borrow(self) -> tuple[Page, GiveBack]:
        """A tab, once one is free, and how to give it back: for whoever opens several tasks in it."""
        pool = self._started()
        lease = await pool.borrow()
        return lease.page, partial(pool.give_back, lease)

    def session_in(
        self, page: Page, task: str, *, url: str | None = None, give_back: GiveBack = keep
    ) -> MiniwobSession:
        """A session in a tab, not yet begun; closing it leaves the tab alone unless `give_back` says otherwise."""
        return MiniwobSession(
            page=page,
            task=task,
            url=url or page_url(task),
            blobs=self._blobs,
            accessibility=accessibility_tree if self._options.accessibility else None,
            give_back=give_back,
        )

    async def _opened(self, task: str, *, url: str, seed: int) -> MiniwobSession:
        page, give_back = await self.borrow()
        session = self.session_in(page, task, url=url, give_back=give_back)
        return await once_ready(session, session.begin(seed))

    async def close(self) -> None:
        """End the browsers and remove their files. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    def _started(self) -> BrowserPool:
        if self._pool is None:
            binary = find_browser(channel=self._options.channel, executable=self._options.executable)
            scratch = self._scratch = make_root()

            async def launch() -> Browser:
                return await Browser.start(binary=binary, root=scratch)

            self._pool = BrowserPool(launch=launch, open_page=_open_page, limits=self._options.limits)
        return self._pool


@cache
def _templates() -> tuple[Template, ...]:
    return tuple(
        Template(id=TemplateId(f"{NAME}/{task}"), max_turns=_TURNS.get(task, _DEFAULT_TURNS))
        for task in registered_tasks()
    )


async def _open_page(browser: Browser) -> Page:
    return await browser.new_page(width=VIEWPORT_WIDTH, height=VIEWPORT_HEIGHT, script=page_script())


def _page_name(template: Template) -> str:
    return template.id.removeprefix(f"{NAME}/")
