"""Where containers are started, frozen and thawed, and what they have in common: root file system, pages, settings."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.data.snapshot import StoreKind
from cairn.errors import SessionError, SetupError
from cairn.snapshots.containers.cgroups import ControlGroup
from cairn.snapshots.containers.container import NETWORK, Container
from cairn.snapshots.containers.criu import Criu
from cairn.snapshots.containers.layer import agent_command, copy_script, fingerprint, fingerprint_of, write_layer
from cairn.snapshots.containers.leftovers import clean, leftovers
from cairn.snapshots.containers.network import new_network

PREFIX = Path(os.environ.get("CAIRN_SNAPSHOTS", "/var/lib/cairn"))
"""Where scripts/setup-snapshots installs."""

_CLEANING_SECONDS = 3.0  # what cannot be removed must not hold up everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one container."""

    disk: int = 256 << 20  # bytes of files that it writes, which lie in memory
    memory: int = 1 << 30  # bytes, its files included
    processes: int = 512  # threads included


class Yard:
    """Containers with one set of pages. `folder` is a tmpfs folder of this process's own."""

    kind = StoreKind.CRIU

    def __init__(
        self, *, folder: Path, command: Sequence[str], site: Path, prefix: Path = PREFIX, limits: Limits | None = None
    ) -> None:
        """`command` starts the browser inside; `site` is what a container has at /srv/site."""
        self._folder = folder
        self._command = tuple(command)
        self._site = site
        self._prefix = prefix
        self._rootfs = prefix / "rootfs" / "root"
        self._version = prefix / "rootfs" / "VERSION"
        self._criu = Criu(program=prefix / "criu" / "bin" / "criu", hook=folder / "hook.sh")
        self._limits = limits or Limits()
        self._preparing = asyncio.Lock()
        self._ready = False

    @property
    def build(self) -> str:
        """What an image of today needs: the kernel, the root file system, the pages and how the browser is started."""
        version = self._version.read_text(encoding="ascii").strip()
        return " ".join([os.uname().release, version, fingerprint(self._site), fingerprint_of(self._command)])

    async def started(self) -> Container:
        """A new container, whose browser has only just been started."""
        return await self._launched(self._folder_for_one(), "start", command=agent_command(self._command))

    async def thawed(self, image: Path) -> Container:
        """A new container in the state of an image."""
        folder = self._folder_for_one()
        command = self._criu.restore_arguments(folder=folder, image=image, network=NETWORK)
        return await self._launched(folder, "restore", str(image), command=command)

    def place(self, name: str) -> Path:
        """A folder for an image that lives no longer than this yard."""
        return self._folder / "images" / name

    def close(self) -> None:
        """Remove what containers had in common. Idempotent; containers must have ended."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ready = False

    def _folder_for_one(self) -> Path:
        return self._folder / "containers" / secrets.token_hex(4)

    async def _launched(self, folder: Path, mode: str, *image: str, command: Sequence[str]) -> Container:
        async with self._preparing:
            await asyncio.to_thread(self._prepare)
        roots = f"{self._folder / 'layer'}:{self._rootfs}"
        script, run = str(self._folder / "container.sh"), str(self._folder / "run")
        limits = self._limits
        arguments = [script, mode, str(folder), roots, str(limits.disk), run, *image, "--", *command]
        network = new_network()
        group = ControlGroup.make(memory=limits.memory, processes=limits.processes)
        try:
            return await Container.launch(
                folder=folder, arguments=arguments, network=network, group=group, criu=self._criu
            )
        except BaseException:
            await asyncio.to_thread(group.remove)
            raise
        finally:
            os.close(network)

    def _prepare(self) -> None:
        if self._ready and self._criu.hook.is_file():
            return
        if not self._rootfs.is_dir() or not self._criu.program.is_file():
            raise SetupError(f"there is no criu or no root file system in {self._prefix}: run scripts/setup-snapshots")
        clean(leftovers(), seconds=_CLEANING_SECONDS)
        try:
            self._furnish()
        except OSError as error:
            raise SessionError(f"no container can be made in {self._folder}: {error.strerror}") from error
        self._ready = True

    def _furnish(self) -> None:
        write_layer(self._folder / "layer", site=self._site)
        (self._folder / "run").mkdir(exist_ok=True)
        for name in ("container.sh", "hook.sh"):
            copy_script(name, self._folder / name)
        self._criu.hook.chmod(0o700)
