"""Images of containers: in memory up to a budget, then on disk, compressed; the least recently used go first."""

import asyncio
import contextlib
import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

from cairn.data.ids import SnapshotId
from cairn.errors import SessionError
from cairn.scratch import OWNER_VARIABLE, UNFINISHED, mark, remove_all, unfinished, unfinished_name

_SUMS = "sums.json"
_CHUNK = 1 << 20
_PACK_SECONDS = 120.0
_LITTLE = 1 << 20
_ATTRIBUTES = ("--xattrs", "--xattrs-include=*")  # a container's files carry notes of the file system's there

Look = tuple[tuple[str, int, int, int], ...]
"""Name, size, inode and time of the last change of each file in a folder."""


class Images:
    """Folders of files by snapshot. An image is written whole or not at all, and never changes afterwards."""

    def __init__(self, *, memory: Path, disk: Path, budget: int) -> None:
        """`memory` is a tmpfs folder, of which images take up to `budget` bytes; `disk` holds those that were moved."""
        self._memory = memory
        self._disk = disk
        self._budget = budget
        self._used = _found(memory)  # least recently first
        self._readers: Counter[SnapshotId] = Counter()
        self._checked: dict[SnapshotId, Look] = {}
        self._moving = asyncio.Lock()
        self._crowded = True  # images may take more than the budget
        for folder in (memory, disk):
            for half, _ in unfinished(folder):
                remove_all(half)

    @contextlib.asynccontextmanager
    async def writing(self, snapshot: SnapshotId) -> AsyncGenerator[Path]:
        """A folder to write the image to, kept under its name when the block ends without an error."""
        fresh = self._memory / unfinished_name(snapshot)
        try:
            self._memory.mkdir(parents=True, exist_ok=True)
            yield fresh
            await asyncio.to_thread(_seal, fresh)
            looked = await asyncio.to_thread(_look, fresh)
            fresh.rename(self._memory / snapshot)
        except (OSError, SessionError) as error:
            raise _told(error, f"the image of snapshot {snapshot} could not be written", self._memory) from error
        finally:
            await asyncio.to_thread(remove_all, fresh)
        self._checked[snapshot] = looked
        self._touch(snapshot)
        await self._make_room()

    @contextlib.asynccontextmanager
    async def reading(self, snapshot: SnapshotId) -> AsyncGenerator[Path]:
        """The image's folder, in memory and checked, which stays for as long as the block lasts."""
        self._readers[snapshot] += 1
        try:
            async with self._moving:
                path = await self._in_memory(snapshot)
            yield path
        except OSError as error:
            raise _told(error, f"the image of snapshot {snapshot} could not be read", self._memory) from error
        finally:
            self._readers[snapshot] -= 1
        if self._crowded:
            await self._make_room()

    def size(self, snapshot: SnapshotId) -> int:
        """Bytes that the image takes in memory."""
        return _bytes(self._memory / snapshot)

    def kept(self) -> Sequence[SnapshotId]:
        """Every image, wherever it lies."""
        packed = [SnapshotId(path.name.partition(".")[0]) for path in self._disk.glob("*.tar.zst")]
        return sorted({*_found(self._memory), *packed})

    async def remove(self, snapshot: SnapshotId) -> None:
        """Forget the image. Idempotent."""
        async with self._moving:
            self._packed(snapshot).unlink(missing_ok=True)
            await asyncio.to_thread(_remove, self._memory / snapshot)
            self._forget(snapshot)

    async def rest(self) -> None:
        """Move everything to disk that can be moved: nothing will be opened for a while."""
        await self._make_room(0)

    async def _in_memory(self, snapshot: SnapshotId) -> Path:
        path = self._memory / snapshot
        packed = self._packed(snapshot)
        if not path.is_dir():
            if not packed.is_file():
                self._forget(snapshot)
                raise SessionError(f"the image of snapshot {snapshot} is gone: neither {path} nor {packed} is there")
            await self._unpack(packed, snapshot)
        elif await asyncio.to_thread(_look, path) != self._checked.get(snapshot):
            try:
                self._checked[snapshot] = await asyncio.to_thread(_check, path, snapshot)
            except SessionError:
                if not packed.is_file():
                    raise
                await asyncio.to_thread(_remove, path)
                await self._unpack(packed, snapshot)
        self._touch(snapshot)
        return path

    async def _unpack(self, packed: Path, snapshot: SnapshotId) -> None:
        fresh = self._memory / unfinished_name(snapshot)
        try:
            fresh.mkdir(parents=True)
            await _tar(
                "--extract", *_ATTRIBUTES, "--zstd", "--file", str(packed), "--directory", str(fresh), "--same-owner"
            )
            looked = await asyncio.to_thread(_check, fresh, snapshot)
            with contextlib.suppress(FileExistsError):  # another process was quicker
                fresh.rename(self._memory / snapshot)
                self._checked[snapshot] = looked
            self._crowded = True
        except (OSError, SessionError) as error:
            raise _told(error, f"{packed} could not be unpacked", self._memory) from error
        finally:
            await asyncio.to_thread(remove_all, fresh)

    async def _make_room(self, budget: int | None = None) -> None:
        """Keep to a budget, by default the usual one, as far as there is room elsewhere: what cannot be moved stays."""
        most = self._budget if budget is None else budget
        async with self._moving:
            for snapshot in tuple(self._used):
                self._crowded = await asyncio.to_thread(_bytes, self._memory) > most
                if not self._crowded:
                    return
                if not self._readers[snapshot]:
                    with contextlib.suppress(SessionError, OSError):
                        await self._move_out(snapshot)

    async def _move_out(self, snapshot: SnapshotId) -> None:
        self._disk.mkdir(parents=True, exist_ok=True)
        packed = self._packed(snapshot)
        folder = self._memory / snapshot
        if folder.is_dir() and not packed.exists():
            fresh = self._disk / unfinished_name(packed.name)
            packer = "--use-compress-program=zstd -1"
            try:
                await _tar("--create", *_ATTRIBUTES, packer, "--file", str(fresh), "--directory", str(folder), ".")
                fresh.replace(packed)
            finally:
                fresh.unlink(missing_ok=True)
        await asyncio.to_thread(_remove, folder)
        self._forget(snapshot)

    def _touch(self, snapshot: SnapshotId) -> None:
        self._used = [*(kept for kept in self._used if kept != snapshot), snapshot]

    def _forget(self, snapshot: SnapshotId) -> None:
        self._used = [kept for kept in self._used if kept != snapshot]
        self._checked.pop(snapshot, None)

    def _packed(self, snapshot: SnapshotId) -> Path:
        return self._disk / f"{snapshot}.tar.zst"


def _found(memory: Path) -> list[SnapshotId]:
    """What is whole in memory, oldest first."""
    whole = [path for path in memory.glob("*") if path.suffix != UNFINISHED and (path / _SUMS).is_file()]
    return [SnapshotId(path.name) for path in sorted(whole, key=_age)]


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # another process has just moved it


def _told(error: OSError | SessionError, what: str, memory: Path) -> SessionError:
    """What went wrong, where a full folder is what is behind it."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(memory).free < _LITTLE:
            return SessionError(f"{what}: {memory} is full; remove snapshots, or give it more room")
    return SessionError(f"{what}: {error.strerror or error}") if isinstance(error, OSError) else error


def _remove(image: Path) -> None:
    """Rename it first: what is left of one that was half removed must not be taken for the image."""
    going = image.with_name(unfinished_name(image.name))
    with contextlib.suppress(FileNotFoundError):
        image.rename(going)
    remove_all(going)


async def _tar(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "tar",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, OWNER_VARIABLE: mark()},
    )
    try:
        async with asyncio.timeout(_PACK_SECONDS):
            _, said = await process.communicate()
    except TimeoutError as error:
        raise SessionError(f"tar did not finish within {_PACK_SECONDS:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise SessionError(f"an image could not be moved: {said.decode(errors='replace').strip()[-300:]}")


def _seal(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_socket():  # an archive has no place for it, and criu makes it anew
            path.unlink()
    (folder / _SUMS).write_text(json.dumps(dict(_sums(folder))), encoding="utf-8")


def _check(folder: Path, snapshot: SnapshotId) -> Look:
    """Compare it with its checksums. How it looks, while it is as it should be."""
    try:
        noted = json.loads((folder / _SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SessionError(f"the image of snapshot {snapshot} in {folder} is damaged: it has no checksums") from error
    looked = _look(folder)
    found = dict(_sums(folder))
    wrong = sorted(name for name in noted.keys() | found.keys() if noted.get(name) != found.get(name))
    if wrong:
        raise SessionError(f"the image of snapshot {snapshot} is damaged: {folder / wrong[0]} is not what was saved")
    return looked


def _look(folder: Path) -> Look:
    """Changes whenever anything in the folder does, and is quickly had."""
    looks: list[tuple[str, int, int, int]] = []
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        looks.append((str(path.relative_to(folder)), about.st_size, about.st_ino, about.st_ctime_ns))
    return tuple(looks)


def _sums(folder: Path) -> Iterator[tuple[str, str]]:
    """Of each file, link and folder but the list of sums: rights, owner, content."""
    for path in sorted(folder.rglob("*")):
        if path.name != _SUMS or path.parent != folder:
            about = path.lstat()
            total = zlib.crc32(os.fsencode(path.readlink())) if path.is_symlink() else _sum(path)
            name = str(path.relative_to(folder))
            yield name, f"{about.st_mode:o} {about.st_uid}:{about.st_gid} {total:08x}"


def _sum(path: Path) -> int:
    total = 0
    if path.is_file():
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                total = zlib.crc32(chunk, total)
    return total


def _bytes(folder: Path) -> int:
    total = 0
    for parent, folders, files in os.walk(folder):  # unlike a glob, it passes over what has just been renamed
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118 - there are many
    return total
