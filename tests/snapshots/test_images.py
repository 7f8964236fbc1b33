"""Images of containers: whole or not at all, checked, and moved to disk when memory runs short."""

import asyncio
from pathlib import Path

import pytest

from cairn.data.ids import SnapshotId
from cairn.errors import SessionError
from cairn.snapshots.containers.images import Images

A, B, C = SnapshotId("a"), SnapshotId("b"), SnapshotId("c")
MEGABYTE = 1 << 20


def images(folder: Path, *, budget: int = 100 * MEGABYTE) -> Images:
    return Images(memory=folder / "memory", disk=folder / "disk", budget=budget)


async def keep(kept: Images, snapshot: SnapshotId, *, size: int = MEGABYTE) -> None:
    async with kept.writing(snapshot) as image:
        (image / "files").mkdir(parents=True)
        (image / "files" / "pages").write_bytes(snapshot.encode() * size)
        (image / "files" / "link").symlink_to("nowhere")


async def interrupted(kept: Images) -> None:
    async with kept.writing(A) as image:
        image.mkdir(parents=True)
        (image / "pages").write_bytes(b"half")
        raise ZeroDivisionError


async def content(kept: Images, snapshot: SnapshotId) -> bytes:
    async with kept.reading(snapshot) as image:
        assert (image / "files" / "link").is_symlink()
        return (image / "files" / "pages").read_bytes()[:1]


def in_memory(folder: Path) -> set[str]:
    return {path.name for path in (folder / "memory").iterdir()}


async def test_an_image_is_there_once_it_is_written(tmp_path: Path) -> None:
    kept = images(tmp_path)
    await keep(kept, A)
    assert await content(kept, A) == b"a"
    assert MEGABYTE <= kept.size(A) < 2 * MEGABYTE


async def test_an_image_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    kept = images(tmp_path)
    with pytest.raises(ZeroDivisionError):
        await interrupted(kept)
    assert in_memory(tmp_path) == set()
    with pytest.raises(SessionError, match="snapshot a is gone"):
        await content(kept, A)


async def test_beyond_the_budget_the_least_recently_used_go_to_disk_and_come_back(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=int(2.5 * MEGABYTE))
    await keep(kept, A)
    await keep(kept, B)
    await content(kept, A)
    await keep(kept, C)
    assert in_memory(tmp_path) == {"a", "c"}
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"b.tar.zst"}
    assert await content(kept, B) == b"b"
    assert in_memory(tmp_path) == {"b", "c"}


async def test_an_image_in_use_stays_in_memory(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=int(1.5 * MEGABYTE))
    await keep(kept, A)
    async with kept.reading(A) as image:
        await keep(kept, B)
        await keep(kept, C)
        assert image.is_dir()
    assert in_memory(tmp_path) == {"c"} or in_memory(tmp_path) == {"a"}


async def test_another_process_finds_the_images(tmp_path: Path) -> None:
    await keep(images(tmp_path), A)
    assert await content(images(tmp_path), A) == b"a"


@pytest.mark.parametrize("harm", ["change", "shorten", "remove", "add", "unsealed"])
async def test_a_damaged_image_is_an_error_that_names_the_file(tmp_path: Path, harm: str) -> None:
    await keep(images(tmp_path), A)
    pages = tmp_path / "memory" / "a" / "files" / "pages"
    match harm:
        case "change":
            data = bytearray(pages.read_bytes())
            data[500] ^= 1
            pages.write_bytes(data)
        case "shorten":
            pages.write_bytes(pages.read_bytes()[:-1])
        case "remove":
            pages.unlink()
        case "add":
            pages.with_name("more").write_bytes(b"")
        case _:
            (tmp_path / "memory" / "a" / "sums.json").unlink()
    with pytest.raises(SessionError, match=r"image of snapshot a .*damaged"):
        await content(images(tmp_path), A)


async def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=0)
    await keep(kept, A)
    packed = tmp_path / "disk" / "a.tar.zst"
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(SessionError, match="could not be moved"):
        await content(images(tmp_path), A)
    assert in_memory(tmp_path) <= {"a.new"}


async def test_many_readers_at_once_unpack_once(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=0)
    await keep(kept, A)
    async with asyncio.TaskGroup() as readers:
        found = [readers.create_task(content(kept, A)) for _ in range(8)]
    assert [reader.result() for reader in found] == [b"a"] * 8


async def test_a_removed_image_is_gone_from_everywhere(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=0)
    await keep(kept, A)
    await kept.remove(A)
    await kept.remove(A)
    assert in_memory(tmp_path) == set()
    assert list((tmp_path / "disk").iterdir()) == []
