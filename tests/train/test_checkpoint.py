from pathlib import Path

import pytest

from cairn.errors import ConfigError, SetupError
from cairn.train.checkpoint import existing, latest, point_to, write_directory


def fill(text: str):
    def write(path: Path) -> None:
        (path / "a.txt").write_text(text)

    return write


def test_a_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "c"
    write_directory(target, lambda p: (p / "old.txt").touch())
    write_directory(target, fill("new"))
    assert [p.name for p in target.iterdir()] == ["a.txt"]
    assert [p.name for p in target.parent.iterdir()] == ["c"]


def test_a_failed_write_leaves_the_old_directory(tmp_path: Path) -> None:
    target = tmp_path / "c"
    write_directory(target, fill("old"))

    def half(path: Path) -> None:
        (path / "a.txt").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(SetupError, match="no space left"):
        write_directory(target, half)
    assert (target / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_death_between_the_two_renames_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "c"
    write_directory(target, fill("old"))
    rename = Path.rename

    def dies(self: Path, to: Path) -> Path:
        if self.name == "c.new":
            raise KeyboardInterrupt
        return rename(self, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            write_directory(target, fill("new"))
    assert (existing(target) / "a.txt").read_text() == "old"
    write_directory(target, fill("newer"))
    assert (existing(target) / "a.txt").read_text() == "newer"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_the_pointer_names_the_newest_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    for name in ("step-1", "step-2"):
        write_directory(tmp_path / name, fill(name))
        point_to(tmp_path, name)
    assert latest(tmp_path) == tmp_path / "step-2"


def test_a_pointer_to_nothing_is_an_error(tmp_path: Path) -> None:
    point_to(tmp_path, "step-9")
    with pytest.raises(ConfigError, match="step-9"):
        latest(tmp_path)
