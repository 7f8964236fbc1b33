"""Where snapshots live, and who may be there at once."""

import fcntl
import os
from pathlib import Path

import pytest

from cairn.errors import StoreError
from cairn.snapshots import home as homes
from cairn.snapshots.home import Home, orphaned_images


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(homes, "MEMORY", tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    return Home(folder=tmp_path / "kept")


def test_two_folders_have_two_places_in_memory_and_each_path_of_one_folder_the_same(home: Home) -> None:
    home.folder.mkdir()
    assert home.memory == Home(folder=home.folder / ".." / "kept").memory
    assert home.memory != Home(folder=home.folder / "other").memory


def test_a_place_in_memory_without_images_is_tidied_away_and_one_with_images_stays(home: Home) -> None:
    home.claim()
    home.tidy()
    assert not home.memory.exists()
    home.claim()
    (home.memory / "abc").mkdir()
    home.tidy()
    assert home.memory.exists()
    home.raze()
    assert not home.memory.exists()


def test_images_whose_home_was_removed_are_found(home: Home, tmp_path: Path) -> None:
    home.folder.mkdir()
    home.claim()
    assert list(orphaned_images(tmp_path / "memory")) == []
    home.folder.rmdir()
    assert list(orphaned_images(tmp_path / "memory")) == [home.memory]


def test_many_may_save_at_once_but_nobody_is_alone_then(home: Home) -> None:
    with home.shared(), home.shared(), home.alone() as alone:
        assert not alone
    with home.alone() as alone:
        assert alone


def test_while_one_is_alone_nobody_else_comes(home: Home) -> None:
    with home.alone() as alone:
        assert alone
        file = os.open(home.folder / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(file)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match=r"no snapshots can be kept in .*file/kept"),
        Home(folder=tmp_path / "file" / "kept").shared(),
    ):
        pass
