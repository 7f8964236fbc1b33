"""`cairn snapshot`: states that one command saves and another one opens."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cairn.cli.main import app


def cairn(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def last_line(result: Result) -> dict[str, object]:
    return json.loads(result.stdout.strip().splitlines()[-1])


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, str]:
    """A folder with a snapshot, two steps into a task of three."""
    folder = tmp_path / "kept"
    saved = cairn("snapshot", "save", "scripted", "count", "--index", "2", "--steps", "2", "--in", folder)
    assert saved.exit_code == 0, saved.stderr
    assert "store: replay (not criu: this environment knows no containers" in saved.stderr
    return folder, str(last_line(saved)["id"])


def test_a_saved_state_opens_in_several_sessions_which_play_on(kept: tuple[Path, str], tmp_path: Path) -> None:
    folder, snapshot = kept
    picture = tmp_path / "seen.png"
    opened = cairn("snapshot", "open", snapshot, "--branches", "3", "--play", "--picture", picture, "--in", folder)
    assert opened.exit_code == 0, opened.stderr
    assert last_line(opened)["rewards"] == [1.0, 1.0, 1.0]
    assert "scripted/count#2, step 2: count to 3" in opened.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_snapshots_are_listed_and_removed(kept: tuple[Path, str]) -> None:
    folder, snapshot = kept
    listed = cairn("snapshot", "list", "--json", "--in", folder)
    assert last_line(listed) == {snapshot: {"task": "scripted/count#2", "step": 2, "store": "replay", "bytes": 0}}
    assert snapshot in cairn("snapshot", "list", "--in", folder).stdout
    assert cairn("snapshot", "rm", snapshot, "--in", folder).exit_code == 0
    assert last_line(cairn("snapshot", "list", "--json", "--in", folder)) == {}
    assert cairn("snapshot", "rm", "--all", "--in", folder).exit_code == 0


def test_pictures_go_with_the_last_snapshot_that_shows_them(kept: tuple[Path, str], tmp_path: Path) -> None:
    folder, later = kept

    def pictures() -> set[Path]:
        return {path for path in (folder / "blobs").glob("*/*") if path.is_file()}

    saved = cairn("snapshot", "save", "scripted", "count", "--index", "2", "--steps", "1", "--in", folder)
    both = pictures()
    assert cairn("snapshot", "rm", later, "--in", folder).exit_code == 0
    assert pictures() < both
    earlier = str(last_line(saved)["id"])
    opened = cairn("snapshot", "open", earlier, "--picture", tmp_path / "seen.png", "--in", folder)
    assert opened.exit_code == 0, opened.stderr
    assert cairn("snapshot", "rm", earlier, "--in", folder).exit_code == 0
    assert pictures() == set()


def test_a_damaged_snapshot_is_listed_as_such_and_can_be_removed(kept: tuple[Path, str]) -> None:
    folder, snapshot = kept
    path = folder / "shelf" / f"{snapshot}.json"
    path.write_text(path.read_text()[:99])
    (folder / "states").mkdir(exist_ok=True)
    (folder / "states" / "0123456789abcdef.state").touch()  # of a snapshot that was never finished
    opened = cairn("snapshot", "open", snapshot, "--in", folder)
    assert opened.exit_code == 1
    assert f"remove it with `cairn snapshot rm {snapshot}`" in opened.stderr
    assert last_line(cairn("snapshot", "list", "--json", "--in", folder)) == {snapshot: {"damaged": True}}
    assert "damaged" in cairn("snapshot", "list", "--in", folder).stdout
    assert cairn("snapshot", "rm", "--all", "--in", folder).stdout == "removed 1\n"
    assert not [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


def test_what_holds_no_snapshots_is_said(tmp_path: Path) -> None:
    assert f"there are no snapshots in {tmp_path}" in cairn("snapshot", "list", "--in", tmp_path).stderr
    (tmp_path / "file").touch()
    listed = cairn("snapshot", "list", "--in", tmp_path / "file")
    assert (listed.exit_code, listed.stderr) == (2, f"error: {tmp_path}/file is no folder\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("open", "nope"), "there is no snapshot 'nope' in"),
        (("open", "../etc"), "is no snapshot's id"),
        (("rm", "nope"), "there is no snapshot 'nope'"),
        (("rm",), "name the snapshots to remove, or say --all"),
        (("save", "scripted", "cuont"), "did you mean 'count'?"),
        (("save", "miniwobb", "click-test"), "miniwob"),
        (("save", "scripted", "count", "--store", "magic"), "store"),
        (("save", "scripted", "count", "--steps", "9"), "was over after 1 of 9 steps"),
        (("save", "scripted", "count", "--store", "criu"), "the snapshot store criu cannot be used"),
    ],
)
def test_bad_requests_are_one_sentence_and_status_2_or_3(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = cairn("snapshot", *arguments, "--in", tmp_path / "none")
    assert result.exit_code in {2, 3}
    assert said in result.stderr
    assert "Traceback" not in result.stderr
