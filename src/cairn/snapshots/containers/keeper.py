"""A process that holds namespaces, and the commands that run in them. Everything there ends when it does."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cairn.errors import SessionError, SessionTimeoutError

_LIFELINE = 5
_READY_SECONDS = 60.0
_END_SECONDS = 20.0
_PAUSE = 0.005
_JOIN = 'echo 0 >/sys/fs/cgroup/keeper/cgroup.procs; exec "$@"'
"""A command must be below the group that its namespace calls the root, or nothing finds its place."""


class Keeper:
    """The namespaces that `podman.sh` makes. They end with `close`, and when this process dies."""

    def __init__(self, *, process: "subprocess.Popen[bytes]", lifeline: int, pid: int, log: Path) -> None:
        self._process = process
        self._lifeline = lifeline
        self.pid = pid  # of their first process, on this host
        self._log = log

    @classmethod
    def launch(cls, script: Sequence[str], *, environment: Mapping[str, str], folder: Path) -> "Keeper":
        """Run the script, and wait until the folder's `pid` is there. Blocks; a `SessionError` where it ends before."""
        ours, theirs = os.pipe()
        log = folder.with_name(f"{folder.name}.log")
        try:
            process = _spawn(script, environment=environment, lifeline=ours, log=log)
        except BaseException:
            os.close(theirs)
            raise
        finally:
            os.close(ours)
        try:
            pid = _appeared(folder, process, log)
        except BaseException:
            os.close(theirs)
            _ended(process)
            log.unlink(missing_ok=True)
            raise
        return cls(process=process, lifeline=theirs, pid=pid, log=log)

    @property
    def alive(self) -> bool:
        """Whether the namespaces are still there."""
        return self._process.poll() is None and Path(f"/proc/{self.pid}/ns/mnt").exists()  # gone as soon as it dies

    async def run(self, command: Sequence[str], *, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
        """Run a command inside; its exit status, and all that it said. Killed, whole, when the time is up."""
        process = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(self.pid), "--mount", "--pid", "--cgroup", "--", "sh", "-c", _JOIN, "join", *command,
            env=dict(environment), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                said, _ = await process.communicate()
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
            if isinstance(error, TimeoutError):
                raise SessionTimeoutError(f"{_name(command)} did not finish within {seconds:g} s") from error
            raise
        return process.returncode or 0, said.decode(errors="replace").strip()

    def close(self) -> None:
        """End everything inside, and wait until nothing is left. Blocks. Idempotent."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        _ended(self._process)
        self._log.unlink(missing_ok=True)


def _spawn(
    script: Sequence[str], *, environment: Mapping[str, str], lifeline: int, log: Path
) -> "subprocess.Popen[bytes]":
    def wire() -> None:
        os.dup2(lifeline, 60)
        os.dup2(60, _LIFELINE)
        os.closerange(6, 100)

    with log.open("ab") as errors:
        return subprocess.Popen(  # noqa: S603 - our own script
            ["unshare", "--mount", "--propagation=private", "sh", *script],  # noqa: S607 - util-linux, wherever it is
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            preexec_fn=wire,  # noqa: PLW1509 - plain system calls on numbers alone
            close_fds=False,
            start_new_session=True,
        )


def _appeared(folder: Path, process: "subprocess.Popen[bytes]", log: Path) -> int:
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            return int((folder / "pid").read_text(encoding="ascii"))
        if process.poll() is not None:
            said = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-400:]
            raise SessionError(f"Podman's namespaces could not be made: {said or 'nothing says why'}")
        time.sleep(_PAUSE)
    raise SessionTimeoutError(f"waited {_READY_SECONDS:g} s for Podman's namespaces")


def _ended(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _name(command: Sequence[str]) -> str:
    return Path(command[0]).name
