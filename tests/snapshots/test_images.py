"""Images of containers: whole or not at all, checked, and moved to disk when memory runs short."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.data.ids import SnapshotId
from cairn.errors import SessionError
from cairn.scratch import unfinished_name
from cairn.snapshots.containers.images import Images
from snapshots.confined import mounted

A, B, C = SnapshotId("a"), SnapshotId("b"), SnapshotId("c")
MEGABYTE = 1 << 20
packed = pytest.mark.skipif(shutil.which("zstd") is None, reason="images on disk need the program zstd")


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


@packed
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


@packed
async def test_at_rest_nothing_is_in_memory_and_everything_is_there(tmp_path: Path) -> None:
    kept = images(tmp_path)
    for snapshot in (A, B):
        await keep(kept, snapshot)
    await kept.rest()
    assert in_memory(tmp_path) == set()
    assert await content(images(tmp_path), B) == b"b"
    await keep(kept, C)
    assert C in in_memory(tmp_path)  # later ones have their usual room


@packed
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


@packed
async def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=0)
    await keep(kept, A)
    packed = tmp_path / "disk" / "a.tar.zst"
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(SessionError, match="could not be moved"):
        await content(images(tmp_path), A)
    assert in_memory(tmp_path) <= {"a.new"}


@packed
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


async def test_damage_after_the_first_check_is_found_too(tmp_path: Path) -> None:
    kept = images(tmp_path)
    await keep(kept, A)
    assert await content(kept, A) == b"a"
    pages = tmp_path / "memory" / "a" / "files" / "pages"
    with pages.open("r+b") as file:
        file.write(b"b")
    with pytest.raises(SessionError, match=r"image of snapshot a is damaged: .*pages is not what was saved"):
        await content(kept, A)


@pytest.mark.parametrize("harm", ["rights", "link"])
async def test_rights_and_links_are_part_of_what_was_saved(tmp_path: Path, harm: str) -> None:
    await keep(images(tmp_path), A)
    files = tmp_path / "memory" / "a" / "files"
    if harm == "rights":
        (files / "pages").chmod(0o600)
    else:
        (files / "link").unlink()
        (files / "link").symlink_to("elsewhere")
    with pytest.raises(SessionError, match=r"image of snapshot a is damaged"):
        await content(images(tmp_path), A)


@packed
async def test_an_image_damaged_in_memory_comes_back_from_disk(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=0)
    await keep(kept, A)
    kept = images(tmp_path)
    assert await content(kept, A) == b"a"  # unpacked; the archive stays
    (tmp_path / "memory" / "a" / "files" / "pages").write_bytes(b"other")
    assert await content(kept, A) == b"a"


def name_by_a_dead_process() -> str:
    code = "from cairn.scratch import unfinished_name; print(unfinished_name('a'))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


async def test_what_a_dead_process_had_not_finished_is_removed_and_never_taken_for_an_image(tmp_path: Path) -> None:
    await keep(images(tmp_path), A)
    dead = name_by_a_dead_process()
    half, going_on = tmp_path / "memory" / dead, tmp_path / "memory" / unfinished_name("b")
    for folder in (half, going_on):
        shutil.copytree(tmp_path / "memory" / "a", folder, symlinks=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / dead).write_bytes(b"half an archive")
    kept = images(tmp_path)
    assert in_memory(tmp_path) == {"a", going_on.name}
    assert list((tmp_path / "disk").iterdir()) == []
    assert list(kept.kept()) == [A]


@packed
async def test_an_image_with_a_socket_comes_back_from_disk(tmp_path: Path) -> None:
    kept = images(tmp_path, budget=0)
    async with kept.writing(A) as image:
        (image / "files").mkdir(parents=True)
        (image / "files" / "pages").write_bytes(b"a")
        (image / "files" / "link").symlink_to("nowhere")
        os.mknod(image / "files" / "socket", stat.S_IFSOCK | 0o600)
    assert in_memory(tmp_path) == set()
    assert await content(images(tmp_path), A) == b"a"


async def test_a_disk_that_takes_nothing_leaves_images_in_memory(tmp_path: Path) -> None:
    (tmp_path / "disk").write_text("a file in the way")
    kept = images(tmp_path, budget=0)
    await keep(kept, A)
    assert in_memory(tmp_path) == {"a"}
    assert await content(kept, A) == b"a"


@packed
async def test_a_full_memory_is_told_whether_it_is_written_or_unpacked(tmp_path: Path) -> None:
    (tmp_path / "memory").parent.mkdir(exist_ok=True)
    with mounted(tmp_path / "memory", size=4 * MEGABYTE):
        kept = images(tmp_path)
        await keep(kept, A, size=2 * MEGABYTE)
        with pytest.raises(SessionError, match=r"snapshot b could not be written: .*memory is full; remove snapshots"):
            await keep(kept, B, size=3 * MEGABYTE)
        assert in_memory(tmp_path) == {"a"}
        packed = images(tmp_path, budget=0)
        assert await content(packed, A) == b"a"
        assert in_memory(tmp_path) == set()
        (tmp_path / "memory" / "ballast").write_bytes(bytes(3 * MEGABYTE))
        with pytest.raises(SessionError, match=r"a.tar.zst could not be unpacked: .*memory is full"):
            await content(images(tmp_path), A)
        assert in_memory(tmp_path) == {"ballast"}
        (tmp_path / "memory" / "ballast").unlink()
        assert await content(images(tmp_path), A) == b"a"


async def read_while_it_is_removed(kept: Images, others: Images) -> None:
    async with kept.reading(A) as image:
        await others.remove(A)
        (image / "files" / "pages").read_bytes()


async def test_an_image_that_another_process_removes_meanwhile_is_an_error(tmp_path: Path) -> None:
    kept = images(tmp_path)
    await keep(kept, A)
    with pytest.raises(SessionError, match="snapshot a could not be read: No such file"):
        await read_while_it_is_removed(kept, images(tmp_path))
    with pytest.raises(SessionError, match="snapshot a is gone"):
        await content(kept, A)
