"""Containers that Podman owns, with a storage of Cairn's own: an operator's containers and images are not touched."""

import asyncio
import contextlib
import functools
import platform
import secrets
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.data.snapshot import StoreKind
from cairn.errors import SessionError, SetupError
from cairn.scratch import PREFIX as NAME_PREFIX
from cairn.scratch import mark
from cairn.snapshots.containers.cgroups import ControlGroup
from cairn.snapshots.containers.criu import DeclinedError
from cairn.snapshots.containers.empty_image import NAME as IMAGE
from cairn.snapshots.containers.empty_image import write_image
from cairn.snapshots.containers.family import adopt, lives
from cairn.snapshots.containers.keeper import Keeper
from cairn.snapshots.containers.layer import agent_command, copy_script, fingerprint, fingerprint_of, write_layer
from cairn.snapshots.containers.leftovers import clean, leftovers
from cairn.snapshots.containers.podman_host import (
    Runtime,
    find_runtime,
    podman_lacking,
)
from cairn.snapshots.containers.podman_program import Compression, Podman, Settings
from cairn.snapshots.containers.running import RunningContainer
from cairn.snapshots.containers.yard import PREFIX, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanOptions:
    """How Podman is used."""

    runtime: Runtime = Runtime.AUTO
    compression: Compression = Compression.NONE


class PodmanContainer(RunningContainer):
    """A container that Podman owns; it ends when its yard closes, too."""

    def __init__(self, *, name: str, identity: str, scratch: Path, podman: Podman, release: Callable[[], None]) -> None:
        """`release` frees what the yard holds for it, once it has ended."""
        super().__init__(pid=podman.first_process(identity), scratch=scratch)
        self._name = name
        self._identity = identity
        self._podman = podman
        self._release = release

    async def _dump(self, image: Path) -> None:
        try:
            await asyncio.to_thread(_make, image)
        except OSError as error:
            raise DeclinedError(f"the container could not be saved to {image}: {error.strerror}") from error
        await self._podman.checkpoint(self._identity, image)

    async def _end(self) -> None:
        with contextlib.suppress(SessionError):  # where Podman fails, its namespaces still end with the yard
            await self._podman.remove(self._name)
        await asyncio.to_thread(self._release)

    async def _obituary(self) -> str | None:
        return None if lives(self.pid) else self._podman.last_words(self._identity)


class PodmanYard:
    """Containers with one set of pages. `folder` is a tmpfs folder of this process's own, and not below /run."""

    kind = StoreKind.PODMAN

    def __init__(
        self,
        *,
        folder: Path,
        command: Sequence[str],
        site: Path,
        prefix: Path = PREFIX,
        limits: Limits | None = None,
        options: PodmanOptions | None = None,
    ) -> None:
        """`command` starts the browser inside; `site` is what a container has at /srv/site."""
        self._folder = folder
        self._command = tuple(command)
        self._site = site
        self._prefix = prefix
        self._limits = limits or Limits()
        self._options = options or PodmanOptions()
        self._preparing = asyncio.Lock()
        self._podman: Podman | None = None
        self._keeper: Keeper | None = None
        self._groups: dict[str, ControlGroup] = {}  # by container

    @property
    def build(self) -> str:
        """What an image of today needs: the kernel, root file system, pages, how the browser is started, runtime."""
        version = (self._prefix / "rootfs" / "VERSION").read_text(encoding="ascii").strip()
        started = fingerprint_of(self._command)
        return " ".join([platform.release(), version, fingerprint(self._site), started, str(self._runtime)])

    async def started(self) -> PodmanContainer:
        """A new container, whose browser has only just been started."""
        podman, name = await self._prepared(), _name()
        limits = self._limits if _version_two_alone() else None
        command = agent_command(self._command)
        return await self._joined(podman, name, podman.start(name, command, disk=self._limits.disk, limits=limits))

    async def thawed(self, image: Path) -> PodmanContainer:
        """A new container in the state of an image."""
        podman, name = await self._prepared(), _name()
        return await self._joined(podman, name, podman.restore(name, image))

    def place(self, name: str) -> Path:
        """A folder for an image that lives no longer than this yard."""
        return self._folder / "images" / name

    def close(self) -> None:
        """End all containers and remove what they had in common. Idempotent."""
        if self._keeper is not None:
            self._keeper.close()
        self._keeper = self._podman = None
        for name in tuple(self._groups):
            self._release(name)
        shutil.rmtree(self._folder, ignore_errors=True)

    @functools.cached_property
    def _runtime(self) -> Path:
        return find_runtime(self._options.runtime, prefix=self._prefix)

    async def _prepared(self) -> Podman:
        async with self._preparing:
            if self._podman is None or not self._podman.alive:
                self._podman = await asyncio.to_thread(self._prepare)
            return self._podman

    def _prepare(self) -> Podman:
        lack = podman_lacking(prefix=self._prefix, runtime=self._options.runtime)
        if not lack.ok:
            raise SetupError(f"Podman cannot keep states here: {lack.reason}; {lack.fix}")
        if self._keeper is not None:  # somebody has ended it
            self._keeper.close()
        clean(leftovers())
        settings = Settings(
            folder=self._folder,
            criu=self._prefix / "criu" / "bin",
            runtime=self._runtime,
        )
        try:
            self._furnish(settings)
        except OSError as error:
            raise SessionError(f"no container can be made in {self._folder}: {error.strerror}") from error
        script = [str(self._folder / "podman.sh"), str(self._folder), str(self._prefix / "rootfs" / "root"), _name()]
        self._keeper = Keeper.launch(
            [*script, IMAGE, "--", *settings.command], environment=settings.environment, folder=self._folder
        )
        return Podman(keeper=self._keeper, settings=settings, compression=self._options.compression)

    def _furnish(self, settings: Settings) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings.write()
        write_layer(self._folder / "layer", site=self._site)
        write_image(self._folder / "image.tar")
        for name in ("podman.sh", "loopback.sh"):
            copy_script(name, self._folder / name)

    async def _joined(self, podman: Podman, name: str, making: Coroutine[None, None, str]) -> PodmanContainer:
        """The container of that name, once it is made, within its limits. On failure nothing of it is left."""
        scratch = self._folder / "containers" / name
        release = functools.partial(self._release, name)
        if not _version_two_alone():  # then Podman finds no controllers that could set limits
            limits = self._limits
            self._groups[name] = ControlGroup.make(memory=limits.memory, processes=limits.processes)
        try:
            identity = await making
            container = PodmanContainer(name=name, identity=identity, scratch=scratch, podman=podman, release=release)
            await asyncio.to_thread(self._settle, container, podman.group_of(container.pid), name)
        except BaseException:
            with contextlib.suppress(SessionError):  # what went wrong first is told
                await podman.remove(name)
            await asyncio.to_thread(release)
            raise
        return container

    def _settle(self, container: PodmanContainer, group: Path, name: str) -> None:
        """All of its processes are within its limits from now on, and in Podman's group.

        A runtime takes process 1 alone into the group of a container that it has restored, and criu can neither freeze
        nor seize the others, then.
        """
        container.scratch.mkdir(parents=True)
        own = self._groups.get(name)
        adopt(container.pid, [group, *(own.folders if own else ())])

    def _release(self, name: str) -> None:
        """Free what is held for a container that has ended. Idempotent."""
        own = self._groups.pop(name, None)
        if own is not None:
            own.remove()
        shutil.rmtree(self._folder / "containers" / name, ignore_errors=True)


def _make(image: Path) -> None:
    """The image's folder."""
    if Path("/run") in image.resolve().parents:
        raise DeclinedError(f"Podman has a /run of its own and cannot write to {image}: keep images elsewhere")
    image.mkdir(parents=True)


def _version_two_alone() -> bool:
    """Whether control groups of version 2 alone are in use: then Podman can set limits itself."""
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def _name() -> str:
    return f"{NAME_PREFIX}{mark()}-{secrets.token_hex(4)}"
