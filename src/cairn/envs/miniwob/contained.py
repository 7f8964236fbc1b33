"""MiniWoB++ in containers: the same sessions, each in a container of its own that can be saved whole."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from cairn.data.task import Task
from cairn.envs.chromium.browser import Browser, contained_command
from cairn.envs.chromium.contained import SHELL, SITE, InContainer, joined, leave_tab, read_left, tab
from cairn.envs.chromium.discovery import BrowserBinary
from cairn.envs.chromium.page import Page
from cairn.envs.miniwob.chain import ChainSession, ChainState, chain_of, seed_of, tasks_of
from cairn.envs.miniwob.environment import keep
from cairn.envs.miniwob.pages import VIEWPORT_HEIGHT, VIEWPORT_WIDTH, html_directory, page_script, page_url
from cairn.envs.miniwob.session import MiniwobSession, SessionState
from cairn.ports import BlobStore
from cairn.snapshot_ports import ContainedSession, Container

_PAGES = SITE / "miniwob"
_SESSION = TypeAdapter(SessionState)
_CHAIN = TypeAdapter(ChainState)


class ContainedMiniwobSession(InContainer, MiniwobSession):
    """A session whose container can be saved."""

    def written_state(self) -> bytes:
        return _SESSION.dump_json(self.state())


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniwobContainers:
    """How containers serve MiniWoB++."""

    blobs: BlobStore | None
    binary: BrowserBinary = SHELL

    @property
    def command(self) -> list[str]:
        """Starts the browser in a container."""
        return contained_command(self.binary)

    @property
    def site(self) -> Path:
        """What a container has at /srv/site."""
        return html_directory().parent

    async def prepare(self, container: Container) -> bytes:
        """A tab in a container that has just started, ready for a task, and left."""
        browser = await joined(container, self.binary)
        page = await browser.new_page(width=VIEWPORT_WIDTH, height=VIEWPORT_HEIGHT, script=page_script())
        return await leave_tab(browser, page)

    async def begin_in(self, container: Container, prepared: bytes, task: Task) -> ContainedSession:
        """A session at the task's root, in a container (or a copy of one) that was prepared."""
        browser = await joined(container, self.binary)
        session = self._session(container, browser, browser.page_in(tab(prepared)), task)
        await session.begin(task.seed)
        return session

    async def resume_in(self, container: Container, left: bytes, task: Task) -> ContainedSession:
        """A session in a copy of a container that another session has left."""
        state = read_left(_SESSION, left)
        browser = await joined(container, self.binary)
        session = self._session(container, browser, browser.page_in(state.page), task)
        session.resume(state)
        return session

    def _session(self, container: Container, browser: Browser, page: Page, task: Task) -> ContainedMiniwobSession:
        name = task.template.id.partition("/")[2]
        session = ContainedMiniwobSession(
            page=page,
            task=name,
            url=page_url(name, pages=_PAGES),
            blobs=self.blobs,
            accessibility=None,
            give_back=browser.end,
        )
        session.container, session.browser = container, browser
        return session


class ContainedChainSession(InContainer, ChainSession):
    """A chain whose container can be saved."""

    def written_state(self) -> bytes:
        return _CHAIN.dump_json(self.state())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainContainers(MiniwobContainers):
    """How containers serve chains of MiniWoB++ tasks."""

    async def begin_in(self, container: Container, prepared: bytes, task: Task) -> ContainedChainSession:
        """A session at the chain's root, in a container (or a copy of one) that was prepared."""
        browser = await joined(container, self.binary)
        session = self._chain(container, browser, browser.page_in(tab(prepared)), task)
        await session.begin()
        return session

    async def resume_in(self, container: Container, left: bytes, task: Task) -> ContainedChainSession:
        """A session in a copy of a container that another session has left."""
        state = read_left(_CHAIN, left)
        browser = await joined(container, self.binary)
        page = browser.page_in(state.session.page)
        session = self._chain(container, browser, page, task)
        now = self._part(page, tasks_of(chain_of(task.template))[len(state.performed)])
        now.resume(state.session)
        session.resume(state, now)
        return session

    def _chain(self, container: Container, browser: Browser, page: Page, task: Task) -> ContainedChainSession:
        tasks = tasks_of(chain_of(task.template))

        async def begin(part: int) -> MiniwobSession:
            session = self._part(page, tasks[part])
            await session.begin(seed_of(task.seed, part))
            return session

        session = ContainedChainSession(tasks=tasks, begin=begin, give_back=browser.end)
        session.container, session.browser = container, browser
        return session

    def _part(self, page: Page, name: str) -> MiniwobSession:
        return MiniwobSession(
            page=page,
            task=name,
            url=page_url(name, pages=_PAGES),
            blobs=self.blobs,
            accessibility=None,
            give_back=keep,
        )
