"""Pages of states in containers: the same sessions, each in a container of its own that can be saved whole."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from cairn.data.task import Task
from cairn.envs.chromium.browser import LOOPBACK_FLAGS, Browser, contained_command
from cairn.envs.chromium.contained import SHELL, InContainer, joined, leave_tab, read_left, tab
from cairn.envs.chromium.discovery import BrowserBinary
from cairn.envs.chromium.page import Page
from cairn.envs.states.environment import property_of
from cairn.envs.states.session import SITE, SessionState, StatesSession, new_page, page_url
from cairn.ports import BlobStore
from cairn.snapshot_ports import Container

_ORIGIN = "http://127.0.0.1:8000"  # the agent serves the site, and what lies in the folder of downloads
_DOWNLOADS = Path("/tmp/files")  # noqa: S108 - inside the container
_SESSION = TypeAdapter(SessionState)


class ContainedStatesSession(InContainer, StatesSession):
    """A session whose container can be saved."""

    def written_state(self) -> bytes:
        return _SESSION.dump_json(self.state())


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesContainers:
    """How containers serve the pages of states."""

    blobs: BlobStore | None
    binary: BrowserBinary = SHELL

    @property
    def command(self) -> list[str]:
        """Starts the browser in a container."""
        return contained_command(self.binary, flags=LOOPBACK_FLAGS)

    @property
    def site(self) -> Path:
        """What a container has at /srv/site."""
        return SITE

    async def prepare(self, container: Container) -> bytes:
        """A tab in a container that has just started, ready for a task, and left."""
        browser = await joined(container, self.binary)
        page = await new_page(browser, downloads=_DOWNLOADS)
        return await leave_tab(browser, page)

    async def begin_in(self, container: Container, prepared: bytes, task: Task) -> ContainedStatesSession:
        """A session at the task's root, in a container (or a copy of one) that was prepared."""
        browser = await joined(container, self.binary)
        session = self._session(container, browser, browser.page_in(tab(prepared), outside=True), task)
        await session.begin()
        return session

    async def resume_in(self, container: Container, left: bytes, task: Task) -> ContainedStatesSession:
        """A session in a copy of a container that another session has left."""
        state = read_left(_SESSION, left)
        browser = await joined(container, self.binary)
        session = self._session(container, browser, browser.page_in(state.page, outside=True), task)
        session.resume(state)
        return session

    def _session(self, container: Container, browser: Browser, page: Page, task: Task) -> ContainedStatesSession:
        url = page_url(property_of(task.template), task.seed, origin=_ORIGIN)
        session = ContainedStatesSession(page=page, url=url, blobs=self.blobs, give_back=browser.end)
        session.container, session.browser = container, browser
        return session
