"""A browser in a container, and what its sessions leave behind when the container is saved."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.discovery import BrowserBinary, Channel
from cairn.envs.chromium.page import Page, PageState
from cairn.errors import SessionError
from cairn.snapshot_ports import Container

T = TypeVar("T")

_TAB = TypeAdapter(PageState)

SITE = Path("/srv/site")
"""Where a container has an environment's pages."""

SHELL = BrowserBinary(path=Path("/usr/lib/chromium/chromium-headless-shell"), channel=Channel.SHELL)
"""The headless shell of the root file system: three processes, so that it is saved and opened fastest."""

FULL = BrowserBinary(path=Path("/usr/lib/chromium/chromium"), channel=Channel.CHROME)
"""The whole Chromium of the root file system, for pages that need more than the shell has."""


class InContainer(ABC):
    """Makes a session one whose container can be saved: `leave` it, save the container, `rejoin` it."""

    container: Container
    browser: Browser

    @abstractmethod
    def written_state(self) -> bytes:
        """What another session needs beside a copy of the container."""

    async def leave(self) -> bytes:
        """Let go of the container; what `resume_in` needs beside the saved container."""
        state = self.written_state()
        await self.browser.detach()
        return state

    async def rejoin(self) -> None:
        """Come back to the container after `leave`."""
        await self.browser.attach(await self.container.connect())


async def joined(container: Container, binary: BrowserBinary) -> Browser:
    """The browser that runs in a container. On failure the container ends."""
    client = await container.connect()
    return await Browser.joined(
        binary=binary, holder=container, client=client, describe_end=lambda: "the container ended"
    )


async def leave_tab(browser: Browser, page: Page) -> bytes:
    """Let go of a container with a new tab and no other; what `tab` needs to find it."""
    await browser.keep_only(page)
    state = page.state()
    await browser.detach()
    return _TAB.dump_json(state)


def tab(prepared: bytes) -> PageState:
    """The tab of a container that was prepared."""
    return read_left(_TAB, prepared)


def read_left(adapter: TypeAdapter[T], data: bytes) -> T:
    """What a session left as JSON. Raises `SessionError` where that is damaged."""
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise SessionError(f"the saved session is damaged: {error.errors()[0]['msg']}") from error
