"""What this host has for containers of Podman's."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from cairn.errors import SetupError
from cairn.snapshots.containers.usable import Usable

_SET_UP = "run scripts/setup-snapshots"
_ELSE = "use the stores criu, native or replay"
_ANSWER_SECONDS = 20.0
_SYSTEM_PATH = ":/usr/local/sbin:/usr/sbin:/sbin"  # not everybody's path has them


class Runtime(StrEnum):
    """Programs that run containers for Podman."""

    AUTO = "auto"  # the first below that can save containers
    RUNC = "runc"
    CRUN = "crun"


def podman_lacking(*, prefix: Path, runtime: Runtime = Runtime.AUTO) -> Usable:
    """What is missing at first sight. Asks runtimes, which takes some hundredths of a second."""
    for found in (_of_this_host(), _installed(prefix)):
        if not found.ok:
            return found
    try:
        find_runtime(runtime, prefix=prefix)
    except SetupError as error:
        reason, _, fix = str(error).partition("; ")
        return Usable(reason=reason, fix=fix)
    return Usable()


def _of_this_host() -> Usable:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        here = f"{platform.system()} on {platform.machine()}"
        return Usable(reason=f"saved containers are set up for Linux on x86_64 alone, and this is {here}", fix=_ELSE)
    if os.geteuid() != 0:
        return Usable(reason="Podman saves containers of root alone", fix=f"run as root, or {_ELSE}")
    if "\tcgroup2\n" not in Path("/proc/filesystems").read_text(encoding="ascii"):
        return Usable(reason="this kernel has no control groups of version 2", fix=_ELSE)
    return Usable()


def _installed(prefix: Path) -> Usable:
    if not (prefix / "criu" / "bin" / "criu").is_file() or not (prefix / "rootfs" / "VERSION").is_file():
        return Usable(reason=f"there is no criu or no root file system in {prefix}", fix=_SET_UP)
    for tool in ("podman", "conmon", "nsenter", "unshare", "mount", "find", "ip"):
        if _which(tool) is None:
            return Usable(reason=f"the program {tool} is missing", fix=_SET_UP)
    return Usable()


def find_runtime(wanted: Runtime, *, prefix: Path) -> Path:
    """The runtime's program, the prefix's own before the host's. A `SetupError` where none can save containers."""
    kinds = (Runtime.RUNC, Runtime.CRUN) if wanted is Runtime.AUTO else (wanted,)
    unable: list[str] = []
    for kind in kinds:
        for program in _programs(kind, prefix):
            if _can_save(program):
                return program
            unable.append(f"{program} was built without criu")
    told = " and ".join(unable) or f"{' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} missing"
    other = (
        "choose the runtime runc or run scripts/setup-snapshots --crun" if wanted is Runtime.CRUN else "install runc"
    )
    raise SetupError(f"no runtime can save containers: {told}; {other}, or {_ELSE}")


def _programs(kind: Runtime, prefix: Path) -> Iterator[Path]:
    own = prefix / kind / "bin" / kind
    if own.is_file():
        yield own
    found = _which(kind)
    if found is not None:
        yield Path(found)


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}{_SYSTEM_PATH}")


def _can_save(program: Path) -> bool:
    """Whether the runtime has the command."""
    try:
        asked = subprocess.run(  # noqa: S603 - the runtime that was found
            [program, "checkpoint", "--help"], capture_output=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
