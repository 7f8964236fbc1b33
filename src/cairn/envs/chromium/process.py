"""A child process that cannot outlive its owner, with a scratch directory that cannot either.

A small supervising shell starts the program, waits for the owner's end of a pipe to close (which the kernel does even
after kill -9), then kills the program's whole process group and removes the directory.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cairn.errors import SessionError, SetupError
from cairn.scratch import OWNER_VARIABLE, PREFIX, mark

_LOG = "stderr.log"
_TAIL_BYTES = 4000
_LONGEST_TMPDIR = 60
_PROGRAM_IN, _PROGRAM_OUT, _LIFELINE = 3, 4, 5

# `wait` before `rm`: a dying browser still writes. The last line ends stragglers of the group, and the shell itself.
_SUPERVISOR = """
trap '' HUP INT TERM
scratch=$1; temporary=$2; shift 2
"$@" 5<&- </dev/null &
program=$!
exec 3<&- 4>&-
read -r _ <&5
kill -KILL $program 2>/dev/null
wait $program
rm -rf "$scratch" "$temporary" || { sleep 0.1; rm -rf "$scratch" "$temporary"; }
kill -KILL 0
"""


@dataclass(slots=True, kw_only=True)
class Supervised:
    """A running program: two pipes to talk to it, and a scratch directory of its own."""

    pid: int  # the supervisor's, and the process group's
    to_program: int  # file descriptor; the program reads it as 3
    from_program: int  # file descriptor; the program writes it as 4
    scratch: Path
    temporary: Path  # where the program puts its own temporary files
    _lifeline: int
    _ended: bool = field(default=False)

    def stderr_tail(self) -> str:
        """The end of what the program complained about; empty where nothing is left of it."""
        try:
            text = (self.scratch / _LOG).read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        except OSError:
            return ""
        return text.strip()

    def cut(self) -> None:
        """Let the supervisor kill the program and clean up. Idempotent, and returns at once."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def end(self, *, seconds: float = 5.0) -> None:
        """Cut, wait until nothing is left of program and directory, and insist where that takes too long."""
        self.cut()
        if self._ended:
            return
        self._ended = True
        if not await _reaped(self.pid, seconds):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            await _reaped(self.pid, seconds)
        for folder in (self.scratch, self.temporary):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def spawn(arguments: Sequence[str], *, root: Path, environment: dict[str, str]) -> Supervised:
    """Start the program with `{scratch}` in its arguments replaced by its own new directory below `root`."""
    scratch = root / f"browser-{secrets.token_hex(4)}"
    try:
        scratch.mkdir(parents=True)
        temporary = _temporary(scratch)
    except OSError as error:
        raise SetupError(f"cannot write to {root}: {error.strerror}; set TMPDIR to a writable directory") from error
    filled = [argument.replace("{scratch}", str(scratch)) for argument in arguments]
    child_in, to_program = _high_pipe()
    from_program, child_out = _high_pipe()
    child_life, lifeline = _high_pipe()
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", _SUPERVISOR, "cairn-browser", str(scratch), str(temporary), *filled],
            {**environment, "TMPDIR": str(temporary), OWNER_VARIABLE: mark()},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(scratch / _LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, child_in, _PROGRAM_IN),
                (os.POSIX_SPAWN_DUP2, child_out, _PROGRAM_OUT),
                (os.POSIX_SPAWN_DUP2, child_life, _LIFELINE),
            ],
            setsid=True,
        )
    except OSError as error:
        for descriptor in (to_program, from_program, lifeline):
            os.close(descriptor)
        for folder in (scratch, temporary):
            shutil.rmtree(folder, ignore_errors=True)
        raise SessionError(f"{arguments[0]} did not start: {error}") from error
    finally:
        for descriptor in (child_in, child_out, child_life):
            os.close(descriptor)
    return Supervised(
        pid=pid,
        to_program=to_program,
        from_program=from_program,
        scratch=scratch,
        temporary=temporary,
        _lifeline=lifeline,
    )


def _temporary(scratch: Path) -> Path:
    """A new directory for the program's sockets, too: their paths have a limit of some hundred characters."""
    inside = scratch / "tmp"
    if len(str(inside)) > _LONGEST_TMPDIR:
        return Path(tempfile.mkdtemp(prefix=PREFIX))
    inside.mkdir()
    return inside


def _high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors cannot collide with the fixed numbers that the program is given."""
    pair = os.pipe()
    high = tuple(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in pair)
    for descriptor in pair:
        os.close(descriptor)
    return high[0], high[1]


async def _reaped(pid: int, seconds: float) -> bool:
    """Whether the child ended, and was waited for, within `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause = 0.002
    while not _waited_for(pid):
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(pause)
        pause = min(0.05, pause * 1.5)
    return True


def _waited_for(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
