"""Containers with a program of the tests' own in the browser's place, and what they are tried against."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

import psutil
import pytest

from cairn.snapshot_ports import Container
from cairn.snapshots.containers.podman import PodmanYard
from cairn.snapshots.containers.yard import Limits, Yard
from snapshots.needs import needs_criu, needs_podman

PROGRAM = Path(__file__).with_name("hostile.py")
COMMAND = ("python3", "/srv/site/hostile.py")


@contextlib.contextmanager
def yard_of(command: Sequence[str] = COMMAND, *, limits: Limits | None = None) -> Generator[Yard]:
    """A yard whose site is the hostile program; skips where this host has no containers."""
    needs_criu()
    with _hostile_site() as (folder, site):
        yard = Yard(folder=folder, command=command, site=site, limits=limits)
        try:
            yield yard
        finally:
            yard.close()


@contextlib.contextmanager
def podman_yard_of(command: Sequence[str] = COMMAND, *, limits: Limits | None = None) -> Generator[PodmanYard]:
    """The same with containers that Podman owns."""
    needs_podman()
    with _hostile_site() as (folder, site):
        yard = PodmanYard(folder=folder, command=command, site=site, limits=limits)
        try:
            yield yard
        finally:
            yard.close()


@contextlib.contextmanager
def _hostile_site() -> Generator[tuple[Path, Path]]:
    """A folder in memory for a yard, and its site."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory() as site:
        shutil.copy(PROGRAM, site)
        yield Path(memory) / "yard", Path(site)


@contextlib.contextmanager
def mounted(folder: Path, *, size: int) -> Generator[Path]:
    """A file system in memory of so many bytes; skips where this host lets nobody mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "cairn-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("this host lets nobody mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def inside(container: Container, code: str, *, seconds: float = 60.0) -> object:
    """What `said` is after running the code in the container, as the browser would."""
    client = await container.connect()
    reader, writer = await asyncio.open_unix_connection(sock=client)
    try:
        writer.write(code.encode() + b"\0")
        async with asyncio.timeout(seconds):
            return json.loads((await reader.readuntil(b"\0"))[:-1])
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Listeners:
    """Servers on every address of this host, and how often anybody came."""

    def __init__(self) -> None:
        self.visits = 0
        self.sockets: list[socket.socket] = []
        for family, address in _addresses():
            listening = socket.socket(family)
            try:
                listening.bind((address, 0))
            except OSError:  # of one link alone
                listening.close()
                continue
            listening.listen()
            self.sockets.append(listening)
            threading.Thread(target=self._serve, args=(listening,), daemon=True).start()

    @property
    def places(self) -> list[tuple[str, int]]:
        return [listening.getsockname()[:2] for listening in self.sockets]

    def close(self) -> None:
        for listening in self.sockets:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            self.visits += 1
            with client, contextlib.suppress(OSError):
                client.sendall(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 4\r\n\r\nhost")


def _addresses() -> list[tuple[socket.AddressFamily, str]]:
    addresses = [address for each in psutil.net_if_addrs().values() for address in each]
    families = (socket.AF_INET, socket.AF_INET6)
    return [(socket.AddressFamily(a.family), a.address.partition("%")[0]) for a in addresses if a.family in families]


def living(pids: Sequence[int]) -> list[int]:
    """Those of them that are not over, reaped or not."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found
