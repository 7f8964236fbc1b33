"""Images of containers: in memory up to a budget, then on disk, compressed; the least recently used go first."""

import asyncio
import contextlib
import json
import shutil
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

from cairn.data.ids import SnapshotId
from cairn.errors import SessionError

_SUMS = "sums.json"
_CHUNK = 1 << 20
_PACK_SECONDS = 120.0


class Images:
    """Folders of files by snapshot. An image is written whole or not at all, and never changes afterwards."""

    def __init__(self, *, memory: Path, disk: Path, budget: int) -> None:
        """`memory` is a tmpfs folder, of which images take up to `budget` bytes; `disk` holds those that were moved."""
        self._memory = memory
        self._disk = disk
        self._budget = budget
        self._used = _found(memory)  # least recently first
        self._readers: Counter[SnapshotId] = Counter()
        self._checked: set[SnapshotId] = set()
        self._moving = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def writing(self, snapshot: SnapshotId) -> AsyncGenerator[Path]:
        """A folder to write the image to, kept under its name when the block ends without an error."""
        self._memory.mkdir(parents=True, exist_ok=True)
        fresh = self._memory / f"{snapshot}.new"
        try:
            yield fresh
            await asyncio.to_thread(_seal, fresh)
            fresh.rename(self._memory / snapshot)
        except OSError as error:
            raise SessionError(f"the image could not be written: {error.strerror}: {self._memory} is full?") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        self._checked.add(snapshot)
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
        finally:
            self._readers[snapshot] -= 1
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
            await asyncio.to_thread(shutil.rmtree, self._memory / snapshot, ignore_errors=True)
            self._packed(snapshot).unlink(missing_ok=True)
            self._used = [kept for kept in self._used if kept != snapshot]

    async def _in_memory(self, snapshot: SnapshotId) -> Path:
        path = self._memory / snapshot
        if not path.is_dir():
            packed = self._packed(snapshot)
            if not packed.is_file():
                raise SessionError(f"the image of snapshot {snapshot} is gone: neither {path} nor {packed} is there")
            fresh = self._memory / f"{snapshot}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            await _tar("--extract", "--zstd", "--file", str(packed), "--directory", str(fresh), "--same-owner")
            self._checked.discard(snapshot)
            fresh.rename(path)
        if snapshot not in self._checked:
            await asyncio.to_thread(_check, path, snapshot)
            self._checked.add(snapshot)
        self._touch(snapshot)
        return path

    async def _make_room(self) -> None:
        async with self._moving:
            for snapshot in tuple(self._used):
                if _bytes(self._memory) <= self._budget:
                    return
                if not self._readers[snapshot]:
                    await self._move_out(snapshot)

    async def _move_out(self, snapshot: SnapshotId) -> None:
        self._disk.mkdir(parents=True, exist_ok=True)
        packed = self._packed(snapshot)
        if not packed.exists():
            fresh = packed.with_suffix(".new")
            folder = self._memory / snapshot
            packer = "--use-compress-program=zstd -1"
            await _tar("--create", packer, "--file", str(fresh), "--directory", str(folder), ".")
            fresh.replace(packed)
        await asyncio.to_thread(shutil.rmtree, self._memory / snapshot)
        self._used.remove(snapshot)

    def _touch(self, snapshot: SnapshotId) -> None:
        self._used = [*(kept for kept in self._used if kept != snapshot), snapshot]

    def _packed(self, snapshot: SnapshotId) -> Path:
        return self._disk / f"{snapshot}.tar.zst"


def _found(memory: Path) -> list[SnapshotId]:
    """What other processes left in memory, oldest first."""
    whole = [path for path in memory.glob("*") if (path / _SUMS).is_file() and path.suffix != ".new"]
    return [SnapshotId(path.name) for path in sorted(whole, key=lambda path: path.stat().st_mtime)]


async def _tar(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "tar", *arguments, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_PACK_SECONDS):
            _, said = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SessionError(f"tar did not finish within {_PACK_SECONDS:g} s") from error
    if process.returncode:
        raise SessionError(f"an image could not be moved: {said.decode(errors='replace').strip()[-300:]}")


def _seal(folder: Path) -> None:
    (folder / _SUMS).write_text(json.dumps(dict(_sums(folder))), encoding="utf-8")


def _check(folder: Path, snapshot: SnapshotId) -> None:
    try:
        noted = json.loads((folder / _SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SessionError(f"the image of snapshot {snapshot} in {folder} is damaged: it has no checksums") from error
    found = dict(_sums(folder))
    wrong = sorted(name for name in noted.keys() | found.keys() if noted.get(name) != found.get(name))
    if wrong:
        raise SessionError(f"the image of snapshot {snapshot} is damaged: {folder / wrong[0]} is not what was saved")


def _sums(folder: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != _SUMS:
            total = 0
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    total = zlib.crc32(chunk, total)
            yield str(path.relative_to(folder)), total


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) if folder.is_dir() else 0
