"""Whether containers can be saved and thawed on this host: proved by doing it once, with one that only sleeps."""

import asyncio
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from cairn.errors import BoundaryError, CairnError
from cairn.scratch import make_root
from cairn.snapshot_ports import ContainerYard
from cairn.snapshots.containers.podman import PodmanOptions, PodmanYard
from cairn.snapshots.containers.podman_host import podman_lacking
from cairn.snapshots.containers.usable import Usable
from cairn.snapshots.containers.yard import PREFIX, Yard

MEMORY = Path("/dev/shm")  # noqa: S108 - images belong in memory
_SPACE = 512 << 20
_PROOF_SECONDS = 60.0
_SET_UP = "run scripts/setup-snapshots"
_SLEEP = ("sleep", "1000")
_ELSE = "use the stores native and replay"


def lacking(*, prefix: Path = PREFIX, memory: Path = MEMORY) -> Usable:
    """What is missing at first sight, which is quick to see."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        here = f"{platform.system()} on {platform.machine()}"
        return Usable(reason=f"criu is set up for Linux on x86_64 alone, and this is {here}", fix=_ELSE)
    if os.geteuid() != 0:
        return Usable(reason="checkpoints of processes need root", fix=f"run as root, or {_ELSE}")
    if not (prefix / "criu" / "bin" / "criu").is_file() or not (prefix / "rootfs" / "VERSION").is_file():
        return Usable(reason=f"there is no criu or no root file system in {prefix}", fix=_SET_UP)
    for tool in ("nsenter", "unshare", "mount", "tar", "zstd"):
        if shutil.which(tool) is None:
            return Usable(reason=f"the program {tool} is missing", fix=_SET_UP)
    if not memory.is_dir() or shutil.disk_usage(memory).free < _SPACE:
        return Usable(reason=f"{memory} has less than {_SPACE >> 20} MB free", fix=f"make it larger, or {_ELSE}")
    return Usable()


async def proved(*, prefix: Path = PREFIX, memory: Path = MEMORY) -> Usable:
    """What goes wrong when a container is started, saved, thawed and ended; takes about a second."""
    found = await asyncio.to_thread(lacking, prefix=prefix, memory=memory)
    if not found.ok:
        return found
    return await _tried(lambda folder, site: Yard(folder=folder, command=_SLEEP, site=site, prefix=prefix), memory)


async def podman_proved(
    *, prefix: Path = PREFIX, memory: Path = MEMORY, options: PodmanOptions | None = None
) -> Usable:
    """The same of a container that Podman owns; takes some seconds."""
    options = options or PodmanOptions()
    found = await asyncio.to_thread(lacking, prefix=prefix, memory=memory)
    if found.ok:
        found = await asyncio.to_thread(podman_lacking, prefix=prefix, runtime=options.runtime)
    if not found.ok:
        return found

    def make(folder: Path, site: Path) -> PodmanYard:
        return PodmanYard(folder=folder, command=_SLEEP, site=site, prefix=prefix, options=options)

    return await _tried(make, memory)


async def _tried(make: Callable[[Path, Path], ContainerYard], memory: Path) -> Usable:
    try:
        async with asyncio.timeout(_PROOF_SECONDS):
            await _saved_and_thawed(make, memory)
    except TimeoutError:
        return Usable(reason=f"a container was not saved and thawed within {_PROOF_SECONDS:g} s", fix=_ELSE)
    except (BoundaryError, CairnError, OSError) as error:
        return Usable(reason=f"a container could not be saved and thawed: {error}", fix=_ELSE)
    return Usable()


async def _saved_and_thawed(make: Callable[[Path, Path], ContainerYard], memory: Path) -> None:
    root = make_root(memory)
    with tempfile.TemporaryDirectory() as site:
        yard = make(root / "yard", Path(site))
        try:
            first = await yard.started()
            try:
                (await first.connect()).close()
                await first.freeze(yard.place("proof"))
            finally:
                await first.end()
            second = await yard.thawed(yard.place("proof"))
            try:
                (await second.connect()).close()
            finally:
                await second.end()
        finally:
            yard.close()
            shutil.rmtree(root, ignore_errors=True)
