"""One container, seen from outside: started or thawed, spoken to through a socket, frozen to files, ended."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from cairn.errors import SessionError, SessionTimeoutError
from cairn.scratch import OWNER_VARIABLE, mark, remove_all
from cairn.snapshots.containers.cgroups import ControlGroup
from cairn.snapshots.containers.criu import Criu, DeclinedError
from cairn.snapshots.containers.family import lives

SOCKET = "/tmp/agent.sock"  # noqa: S108 - inside the container
NETWORK = 6
"""The descriptor of the network namespace, for container.sh and what it runs."""

_GROUPS_VARIABLE = "CAIRN_GROUPS"
_LIFELINE = 5
_APPEAR_SECONDS = 20.0
_END_SECONDS = 5.0
_PAUSE = 0.002


class Container:
    """A running container. Ends when `end` is called or this process dies."""

    def __init__(
        self,
        *,
        folder: Path,
        supervisor: asyncio.subprocess.Process,
        lifeline: int,
        pid: int,
        group: ControlGroup,
        criu: Criu,
    ) -> None:
        self._criu = criu
        self._group = group
        self.scratch = folder
        self.pid = pid
        self._supervisor = supervisor
        self._lifeline = lifeline
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def launch(
        cls, *, folder: Path, arguments: Sequence[str], network: int, group: ControlGroup, criu: Criu
    ) -> "Container":
        """Run container.sh with `arguments`, and wait until process 1 is there. The folder is this container's own.

        On failure nothing is left.
        """
        ours, theirs = os.pipe()
        try:
            (folder / "disk").mkdir(parents=True)
            (folder / "root").mkdir()
            supervisor = await _spawn(arguments, lifeline=ours, network=network, folder=folder, group=group)
        except OSError as error:
            os.close(theirs)
            raise SessionError(f"no container could be started in {folder}: {error.strerror}") from error
        except BaseException:
            os.close(theirs)
            raise
        finally:
            os.close(ours)
        try:
            pid = await _appeared(folder, supervisor)
        except BaseException:
            os.close(theirs)
            await _ended(supervisor)
            await asyncio.to_thread(_cleared, folder, group)
            raise
        return cls(folder=folder, supervisor=supervisor, lifeline=theirs, pid=pid, group=group, criu=criu)

    async def freeze(self, image: Path) -> None:
        """Write it whole to the new folder `image`. It goes on, and nobody may be connected.

        Where that is cut short, the container ends: its processes may have been left in the middle of it.
        """
        try:
            await self._criu.dump(
                pid=self.pid,
                supervisor=self._supervisor.pid,
                folder=self.scratch,
                image=image,
                group=self._group,
            )
        except DeclinedError:
            raise
        except BaseException:
            await self.end()
            raise

    async def connect(self) -> socket.socket:
        """A client's end of the agent's socket."""
        return await reached(self.pid, check_alive=self._check_alive)

    async def end(self) -> None:
        """Kill everything in it, and wait until nothing is left. Idempotent."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)  # cut short, it would leave what it has not come to yet

    async def _end(self) -> None:
        os.close(self._lifeline)
        await _ended(self._supervisor)
        await asyncio.to_thread(_cleared, self.scratch, self._group)

    async def _check_alive(self) -> None:
        if self._ending is not None:
            raise SessionError("the container has been ended")
        if self._supervisor.returncode is not None or not lives(self.pid):
            await _ended(self._supervisor)  # which writes down why
            raise SessionError(f"the container ended: {_tail(self.scratch / 'container.log')}")


async def reached(pid: int, *, check_alive: Callable[[], Awaitable[None]]) -> socket.socket:
    """A client's end of the socket of the agent with that process id, once it listens."""
    path = f"/proc/{pid}/root{SOCKET}"
    try:
        async with asyncio.timeout(_APPEAR_SECONDS):
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
        raise SessionTimeoutError(f"waited {_APPEAR_SECONDS:g} s for the container's agent to answer") from error


async def _spawn(
    arguments: Sequence[str], *, lifeline: int, network: int, folder: Path, group: ControlGroup
) -> asyncio.subprocess.Process:
    def wire() -> None:
        os.dup2(lifeline, 60)
        os.dup2(network, 61)
        os.dup2(60, _LIFELINE)
        os.dup2(61, NETWORK)
        os.closerange(7, 100)

    owned = {OWNER_VARIABLE: mark(), _GROUPS_VARIABLE: " ".join(str(each) for each in group.folders)}
    with (folder / "container.log").open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            "nsenter",
            f"--net=/proc/self/fd/{NETWORK}",
            "unshare",
            "--mount",
            "--propagation=private",
            "sh",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            preexec_fn=wire,
            close_fds=False,
            start_new_session=True,
            env={**os.environ, **owned},
        )


async def _appeared(folder: Path, supervisor: asyncio.subprocess.Process) -> int:
    """The number in the folder's `pid`, once it is there."""
    try:
        async with asyncio.timeout(_APPEAR_SECONDS):
            while True:
                with contextlib.suppress(OSError, ValueError):
                    return int((folder / "pid").read_text(encoding="ascii"))
                if supervisor.returncode is not None:
                    raise SessionError(f"no container came up: {_tail(folder / 'container.log')}")
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise SessionTimeoutError(f"waited {_APPEAR_SECONDS:g} s for a container's first process") from error


async def _ended(supervisor: asyncio.subprocess.Process) -> None:
    for insist in (False, True):
        if insist:
            with contextlib.suppress(ProcessLookupError):
                supervisor.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await supervisor.wait()
                return


def _cleared(folder: Path, group: ControlGroup) -> None:
    """Remove what a supervisor that was stopped by force has left: processes first, for they write to the folder."""
    group.remove()
    deadline = time.monotonic() + _END_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        remove_all(folder)
        time.sleep(_PAUSE)


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-400:] or "it said nothing"
    return "it left no log"
