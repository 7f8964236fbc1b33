"""A browser in a container, and what its sessions leave behind when the container is saved."""

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.discovery import BrowserBinary, Channel
from cairn.errors import SessionError
from cairn.snapshot_ports import Container

T = TypeVar("T")

SITE = Path("/srv/site")
"""Where a container has an environment's pages."""

SHELL = BrowserBinary(path=Path("/usr/lib/chromium/chromium-headless-shell"), channel=Channel.SHELL)
"""The headless shell of the root file system: three processes, so that it is saved and opened fastest."""

FULL = BrowserBinary(path=Path("/usr/lib/chromium/chromium"), channel=Channel.CHROME)
"""The whole Chromium of the root file system, for pages that need more than the shell has."""


async def joined(container: Container, binary: BrowserBinary) -> Browser:
    """The browser that runs in a container. On failure the container ends."""
    client = await container.connect()
    return await Browser.joined(
        binary=binary, holder=container, client=client, describe_end=lambda: "the container ended"
    )


def read_left(adapter: TypeAdapter[T], data: bytes) -> T:
    """What a session left as JSON. Raises `SessionError` where that is damaged."""
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise SessionError(f"the saved session is damaged: {error.errors()[0]['msg']}") from error
