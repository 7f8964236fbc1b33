"""The criu that `scripts/setup-snapshots` installs: command lines, and what its failures mean."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SessionError, SessionTimeoutError
from cairn.scratch import OWNER_VARIABLE, mark, remove_all
from cairn.snapshots.containers.cgroups import ControlGroup

FOLDER_VARIABLE = "CAIRN_FOLDER"
"""For hook.sh: the container's folder."""

_DUMP_SECONDS = 60.0
_ANSWER_SECONDS = 20.0
_PASSING = ("In-flight connection", "Zombies with threads are not supported")
_ATTEMPTS = 5
_PAUSE = 0.02
_EXTERNAL = "containerNet"
_COMMON = ("--network-lock", "skip", "--manage-cgroups=ignore", "--tcp-established", "-v1")


class DeclinedError(SessionError):
    """criu did not save a container, and let it go on as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criu:
    """The program, by path."""

    program: Path
    hook: Path  # hook.sh, executable

    async def dump(self, *, pid: int, supervisor: int, folder: Path, image: Path, group: ControlGroup) -> int:
        """Write the container of process `pid` to the new folder `image`, files included. Attempts that it took.

        Raises `DeclinedError` where the container is as it was; after any other error that is not certain.
        """
        inode = _network_of(pid)
        command = [
            "nsenter", f"--mount=/proc/{supervisor}/ns/mnt", "--",
            str(self.program), "dump", "-t", str(pid), "-D", str(image), "--external", f"net[{inode}]:{_EXTERNAL}",
            "--file-locks", "--ghost-limit", "64M", "--action-script", str(self.hook), "--leave-running",
            "-o", "dump.log", *_COMMON,
        ]  # fmt: skip
        told = {
            OWNER_VARIABLE: mark(),
            FOLDER_VARIABLE: str(folder),
            "CAIRN_IMAGE": str(image),
            "CAIRN_OUTSIDE": str(group.outside / "cgroup.procs"),
        }
        attempt = 1
        while True:
            await asyncio.to_thread(_empty, image)
            # criu joins the group: an image of another group's tasks is never restored to the end
            code, said = await _run(group.joining(command), environment={**os.environ, **told})
            if code < 0:
                raise SessionError(f"the container could not be saved: criu was ended by signal {-code} in the middle")
            log = _read(image / "dump.log")
            if attempt == _ATTEMPTS or not _passing(code, log, image):
                break
            await asyncio.sleep(_PAUSE * attempt)
            attempt += 1
        if code:
            why = _errors(log) or said or f"criu gave up with status {code}"
            raise DeclinedError(f"the container could not be saved, attempt {attempt}: {why}")
        return attempt

    def restore_arguments(self, *, folder: Path, image: Path, network: int) -> list[str]:
        """What container.sh runs to thaw `image` into the container at `folder`."""
        return [
            str(self.program), "restore", "-D", str(image), "--work-dir", str(folder), "--root", str(folder / "root"),
            "--inherit-fd", f"fd[{network}]:{_EXTERNAL}", "--pidfile", str(folder / "pid.new"),
            "--action-script", str(self.hook), "-o", str(folder / "restore.log"), *_COMMON,
        ]  # fmt: skip


def _empty(image: Path) -> None:
    """A new folder, without what another attempt has left there."""
    try:
        remove_all(image)
        image.mkdir(parents=True)
    except OSError as error:
        raise DeclinedError(f"the container could not be saved to {image}: {error.strerror}") from error


def declined_for_now(log: str) -> bool:
    """Whether what criu declined is over in a moment: a connection that is being made, a process that is ending."""
    return any(reason in log for reason in _PASSING)


def network_lock(program: Path) -> str:
    """What criu holds a network still with, while it saves or restores the connections in it: its option's value.

    Data that a connection has not sent is sent while it is restored, to a peer that may not be there yet and would
    reset it. Kernels without nf_tables take that risk.
    """
    command = [str(program), "check", "--feature", "network_lock_nftables"]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_ANSWER_SECONDS, check=False)  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return "skip"
    return "skip" if asked.returncode else "nftables"


def _passing(code: int, log: str, image: Path) -> bool:
    """Whether it may be saved in a moment. Messages on their way are saved, and criu may not thaw them."""
    if code:
        return declined_for_now(log)
    return any(image.glob("sk-queues*.img"))


def _network_of(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError as error:
        raise SessionError("the container could not be saved: it has ended") from error


async def _run(command: list[str], *, environment: Mapping[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    try:
        async with asyncio.timeout(_DUMP_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError as error:
        raise SessionTimeoutError(f"criu did not finish within {_DUMP_SECONDS:g} s") from error
    finally:
        if process.returncode is None:  # it was not waited for to the end
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0, said.decode(errors="replace").strip()


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _errors(log: str) -> str:
    """The first two, which the others follow from."""
    lines = [line for line in log.splitlines() if "Error" in line and "rlimit" not in line]
    return " / ".join(line.partition(") ")[2] or line for line in lines[:2])
