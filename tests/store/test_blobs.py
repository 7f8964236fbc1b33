import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cairn.data.ids import ImageId
from cairn.errors import SetupError, StoreError
from cairn.store.blobs import BlobFolder


def files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


def test_what_is_put_can_be_got_by_its_hash(tmp_path: Path) -> None:
    image = BlobFolder(tmp_path).put(b"pixels")
    assert image == hashlib.sha256(b"pixels").hexdigest()
    assert BlobFolder(tmp_path).get(image) == b"pixels"


def test_equal_blobs_are_stored_once_and_counted(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    assert blobs.put(b"abc") == blobs.put(b"abc")
    blobs.put(b"d")
    assert BlobFolder(tmp_path).put(b"abc") == blobs.put(b"abc")
    assert len(files(tmp_path)) == 2
    counts = blobs.counts
    assert (counts.stored, counts.stored_bytes, counts.repeated, counts.repeated_bytes) == (2, 4, 2, 6)


def test_an_unknown_blob_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        BlobFolder(tmp_path).get(ImageId("0" * 64))


def test_a_damaged_blob_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    image = BlobFolder(tmp_path).put(b"pixels")
    BlobFolder(tmp_path).path(image).write_bytes(b"pixelz")
    with pytest.raises(StoreError, match=image[2:]):
        BlobFolder(tmp_path).get(image)


def test_blobs_that_nobody_wants_are_removed_from_memory_too(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    kept, gone = blobs.put(b"kept"), blobs.put(b"gone")
    (blobs.path(kept).parent / ".unfinished-x").touch()
    assert blobs.keep_only({kept}) == 2
    assert blobs.get(kept) == b"kept"
    with pytest.raises(KeyError):
        blobs.get(gone)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [blobs.path(kept)]


def test_the_cache_keeps_the_most_recently_used_within_its_size(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path, cache_bytes=8)
    first, second, third = (blobs.put(bytes([i]) * 4) for i in range(3))
    for image in (first, second, third):
        blobs.path(image).unlink()
    assert blobs.get(second) == b"\1\1\1\1"
    assert blobs.get(third) == b"\2\2\2\2"
    with pytest.raises(KeyError):
        blobs.get(first)


def test_reading_refreshes_the_cache(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path, cache_bytes=8)
    first, second = (blobs.put(bytes([i]) * 4) for i in range(2))
    blobs.get(first)
    blobs.put(b"third")
    blobs.path(second).unlink()
    with pytest.raises(KeyError):
        blobs.get(second)


def test_threads_may_share_a_folder(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path, sync=True)
    data = [bytes([i % 7]) * 10 for i in range(100)]
    with ThreadPoolExecutor(4) as pool:
        images = list(pool.map(blobs.put, data))
    assert [blobs.get(i) for i in images] == data
    assert (blobs.counts.stored, blobs.counts.repeated) == (7, 93)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = BlobFolder(tmp_path, sync=True)

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(SetupError, match="no space left"):
        blobs.put(b"pixels")
    assert files(tmp_path) == []
