"""One container, seen from outside: started or thawed, spoken to through a socket, frozen to files, ended."""

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from cairn.errors import SessionError, SessionTimeoutError
from cairn.scratch import OWNER_VARIABLE, mark, remove_all
from cairn.snapshots.containers.cgroups import ControlGroup
from cairn.snapshots.containers.criu import Criu
from cairn.snapshots.containers.family import lives
from cairn.snapshots.containers.running import APPEAR_SECONDS, RunningContainer

NETWORK = 6
"""The descriptor of the network namespace, for container.sh and what it runs."""

_GROUPS_VARIABLE = "CAIRN_GROUPS"
_LIFELINE = 5
_END_SECONDS = 5.0
_PAUSE = 0.002


class Container(RunningContainer):
    """A container of our own making."""

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
        super().__init__(pid=pid, scratch=folder)
        self._criu = criu
        self._group = group
        self._supervisor = supervisor
        self._lifeline = lifeline

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

    async def _dump(self, image: Path) -> None:
        await self._criu.dump(
            pid=self.pid,
            supervisor=self._supervisor.pid,
            folder=self.scratch,
            image=image,
            group=self._group,
        )

    async def _end(self) -> None:
        os.close(self._lifeline)
        await _ended(self._supervisor)
        await asyncio.to_thread(_cleared, self.scratch, self._group)

    async def _obituary(self) -> str | None:
        if self._supervisor.returncode is None and lives(self.pid):
            return None
        await _ended(self._supervisor)  # which writes down why
        return _tail(self.scratch / "container.log")


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
        async with asyncio.timeout(APPEAR_SECONDS):
            while True:
                with contextlib.suppress(OSError, ValueError):
                    return int((folder / "pid").read_text(encoding="ascii"))
                if supervisor.returncode is not None:
                    raise SessionError(f"no container came up: {_tail(folder / 'container.log')}")
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise SessionTimeoutError(f"waited {APPEAR_SECONDS:g} s for a container's first process") from error


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
