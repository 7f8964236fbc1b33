"""Pages of our own, one for each property of a live page: which of them does a saved state keep?"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cairn.data.ids import TemplateId
from cairn.data.task import Root, Start, Task, Template
from cairn.envs.chromium.browser import LOOPBACK_FLAGS, Browser
from cairn.envs.chromium.discovery import find_browser
from cairn.envs.chromium.pool import BrowserPool, Lease, PoolLimits
from cairn.envs.opening import once_ready, require_root
from cairn.envs.states.server import PageServer
from cairn.envs.states.session import SITE, StatesSession, new_page, page_url
from cairn.errors import ConfigError
from cairn.ports import BlobStore
from cairn.scratch import make_root

NAME = "states"
PROPERTIES = (
    "heap", "timer", "interval", "clock", "random", "fetch", "worker", "ended-worker", "local-storage",
    "session-storage", "indexeddb", "cookies", "history", "download", "text", "focus", "scroll", "dialog", "canvas",
    "animation", "settle",
)  # fmt: skip
_TURNS = 12  # more than any plan has steps
_TEMPLATES = tuple(Template(id=TemplateId(f"{NAME}/{name}"), max_turns=_TURNS) for name in PROPERTIES)


def property_of(template: Template) -> str:
    """Its name; raises `ConfigError` where there is no such property."""
    name = template.id.removeprefix(f"{NAME}/")
    if name not in PROPERTIES:
        raise ConfigError(f"{NAME} has no task {name!r}; there are: {', '.join(PROPERTIES)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What lives from the first session to the end."""

    pool: BrowserPool
    server: PageServer
    scratch: Path


class StatesEnvironment:
    """Pages that know whether their state is what it should be. Their time is real, and never the same to the ms."""

    def __init__(
        self, *, blobs: BlobStore | None, limits: PoolLimits | None = None, executable: Path | None = None
    ) -> None:
        """Screenshots go to `blobs`; without it observations have none."""
        self._blobs = blobs
        self._limits = limits or PoolLimits()
        self._executable = executable
        self._running: _Running | None = None

    @property
    def name(self) -> str:
        """As recipes and task ids spell it."""
        return NAME

    @property
    def capacity(self) -> int:
        """Sessions at once."""
        return self._limits.capacity

    @property
    def templates(self) -> Sequence[Template]:
        """One per property."""
        return _TEMPLATES

    def has_expert(self, template: Template) -> bool:
        """All have: the page's own plan."""
        return template in _TEMPLATES

    async def open(self, task: Task, *, start: Start) -> StatesSession:
        """Start an episode in a tab with a cookie jar of its own, once a place is free."""
        require_root(NAME, start)
        name = property_of(task.template)
        running = self._started()
        lease = await running.pool.borrow()
        session = StatesSession(
            page=lease.page,
            url=page_url(name, task.seed, origin=running.server.origin),
            blobs=self._blobs,
            give_back=_Return(running.pool, lease),
        )
        return await once_ready(session, session.begin())

    @property
    def uncovered(self) -> Sequence[str]:
        """What an exported state leaves out."""
        return (
            "variables and functions of scripts", "timers", "requests under way", "workers", "databases", "history",
            "downloads", "dialogs", "what is painted on a canvas", "animations", "the clock", "random numbers",
        )  # fmt: skip

    async def import_state(self, task: Task, state: bytes) -> StatesSession:
        """A session on a new page with the storage, cookies, fields, focus and scrolling of another one."""
        session = await self.open(task, start=Root())
        return await once_ready(session, session.import_state(state))

    async def close(self) -> None:
        """End browsers and server, and remove their files. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            await running.pool.close()
            running.server.close()
            shutil.rmtree(running.scratch, ignore_errors=True)

    def _started(self) -> _Running:
        if self._running is None:
            binary = find_browser(executable=self._executable)
            scratch = make_root()
            downloads = scratch / "downloads"
            downloads.mkdir()

            async def launch() -> Browser:
                return await Browser.start(binary=binary, root=scratch, flags=LOOPBACK_FLAGS)

            self._running = _Running(
                pool=BrowserPool(launch=launch, open_page=partial(new_page, downloads=downloads), limits=self._limits),
                server=PageServer(site=SITE, downloads=downloads),
                scratch=scratch,
            )
        return self._running


@dataclass(frozen=True, slots=True)
class _Return:
    pool: BrowserPool
    lease: Lease

    async def __call__(self) -> None:
        await self.pool.give_back(self.lease)
