"""What containers have in common, whoever owns them: spoken to through a socket, frozen to files, ended."""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

from cairn.errors import SessionError, SessionTimeoutError
from cairn.snapshots.containers.criu import DeclinedError

SOCKET = "/tmp/agent.sock"  # noqa: S108 - inside the container
APPEAR_SECONDS = 20.0
"""How long something of a container may take to appear."""

_PAUSE = 0.002


class RunningContainer(ABC):
    """A running container. Ends when `end` is called or this process dies."""

    def __init__(self, *, pid: int, scratch: Path) -> None:
        """`pid` is that of its first process, as the host counts."""
        self.pid = pid
        self.scratch = scratch
        self._ending: asyncio.Task[None] | None = None

    async def freeze(self, image: Path) -> None:
        """Write it whole to the new folder `image`. It goes on, and nobody may be connected.

        Where that is cut short, the container ends: its processes may have been left in the middle of it.
        """
        try:
            await self._dump(image)
        except DeclinedError:
            raise
        except BaseException:
            await self.end()
            raise

    async def connect(self) -> socket.socket:
        """A client's end of the agent's socket."""
        return await _reached(self.pid, check_alive=self._check_alive)

    async def end(self) -> None:
        """Kill everything in it, and wait until nothing is left. Idempotent."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)  # cut short, it would leave what it has not come to yet

    @abstractmethod
    async def _dump(self, image: Path) -> None:
        """Write it to `image`. A `DeclinedError` says that it was not touched."""

    @abstractmethod
    async def _end(self) -> None:
        """Kill everything in it, and free what is held for it."""

    @abstractmethod
    async def _obituary(self) -> str | None:
        """What it ended by; None while it lives."""

    async def _check_alive(self) -> None:
        if self._ending is not None:
            raise SessionError("the container has been ended")
        cause = await self._obituary()
        if cause is not None:
            raise SessionError(f"the container ended: {cause}")


async def _reached(pid: int, *, check_alive: Callable[[], Awaitable[None]]) -> socket.socket:
    """A client's end of the socket of the agent with that process id, once it listens."""
    path = f"/proc/{pid}/root{SOCKET}"
    try:
        async with asyncio.timeout(APPEAR_SECONDS):
            while True:
                client = socket.socket(socket.AF_UNIX)
                client.setblocking(False)  # noqa: FBT003 - the socket's own signature
                try:
                    client.connect(path)
                except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                    client.close()
                    await check_alive()
                    await asyncio.sleep(_PAUSE)
                except OSError as error:
                    client.close()
                    raise SessionError(f"the container cannot be reached: {error}") from error
                else:
                    return client
    except TimeoutError as error:
        raise SessionTimeoutError(f"waited {APPEAR_SECONDS:g} s for the container's agent to answer") from error
