"""The criu that `scripts/setup-snapshots` installs: command lines, and what its failures mean."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SessionError, SessionTimeoutError
from cairn.snapshots.containers.cgroups import ControlGroup

_DUMP_SECONDS = 60.0
_IN_FLIGHT = "In-flight connection"
_ATTEMPTS = 5
_EXTERNAL = "containerNet"
_COMMON = ("--network-lock", "skip", "--manage-cgroups=ignore", "--tcp-established", "-v1")
_HOOK = """#!/bin/sh
# While the container is frozen: its files belong to the image as much as its memory does.
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] && exec cp -a "{files}" "{image}/files"
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criu:
    """The program, by path."""

    program: Path

    async def dump(self, *, pid: int, supervisor: int, disk: Path, image: Path, group: ControlGroup) -> int:
        """Write the container of process `pid` to the new folder `image`, files included. Attempts that it took."""
        hook = _hook(disk / "files", image)
        inode = _network_of(pid)
        command = [
            "nsenter", f"--mount=/proc/{supervisor}/ns/mnt", "--",
            str(self.program), "dump", "-t", str(pid), "-D", str(image), "--external", f"net[{inode}]:{_EXTERNAL}",
            "--file-locks", "--ghost-limit", "64M", "--action-script", str(hook), "--leave-running", "-o", "dump.log",
            *_COMMON,
        ]  # fmt: skip
        for attempt in range(1, _ATTEMPTS + 1):
            # criu joins the group: an image of another group's tasks is never restored to the end
            code, said = await _run(group.joining(command))
            if code == 0:
                hook.unlink()
                return attempt
            log = (image / "dump.log").read_text(encoding="utf-8", errors="replace")
            if _IN_FLIGHT not in log or attempt == _ATTEMPTS:
                raise SessionError(f"the container could not be saved, attempt {attempt}: {_errors(log) or said}")
        raise AssertionError("unreachable: the last attempt returns or raises")

    def restore_arguments(self, *, folder: Path, image: Path, network: int) -> list[str]:
        """What container.sh runs to thaw `image` into the container at `folder`."""
        return [
            str(self.program), "restore", "-D", str(image), "--root", str(folder / "root"),
            "--inherit-fd", f"fd[{network}]:{_EXTERNAL}", "--pidfile", str(folder / "pid"),
            "-o", str(folder / "restore.log"), *_COMMON,
        ]  # fmt: skip


def _hook(files: Path, image: Path) -> Path:
    image.mkdir(parents=True)
    hook = image / "hook.sh"
    hook.write_text(_HOOK.format(files=files, image=image), encoding="utf-8")
    hook.chmod(0o700)
    return hook


def _network_of(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


async def _run(command: list[str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(_DUMP_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SessionTimeoutError(f"criu did not finish within {_DUMP_SECONDS:g} s") from error
    return process.returncode or 0, said.decode(errors="replace").strip()


def _errors(log: str) -> str:
    lines = [line for line in log.splitlines() if "Error" in line and "rlimit" not in line]
    return " / ".join(line.partition(") ")[2] or line for line in lines[-2:])
