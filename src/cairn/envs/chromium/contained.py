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

BINARY = BrowserBinary(path=Path("/usr/lib/chromium/chromium-headless-shell"), channel=Channel.SHELL)
"""The browser of the root file system."""


async def joined(container: Container) -> Browser:
    """The browser that runs in a container. On failure the container ends."""
    client = await container.connect()
    return await Browser.joined(
        binary=BINARY, holder=container, client=client, describe_end=lambda: "the container ended"
    )


def read_left(adapter: TypeAdapter[T], data: bytes) -> T:
    """What a session left as JSON. Raises `SessionError` where that is damaged."""
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise SessionError(f"the saved session is damaged: {error.errors()[0]['msg']}") from error
