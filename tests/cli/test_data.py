"""`cairn data`: sets are made, shown and refused in words that say what to do."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from cairn.cli.main import app
from formats.made import picture, rows

ROW = {
    "img_filename": "a.png",
    "bbox": [20, 40, 60, 80],
    "instruction": "go",
    "data_type": "icon",
    "data_source": "ios",
}
RECIPE = """
[environment]
name = "scripted"
templates = ["count"]
[policy]
threads = 1
[demonstrations]
per_template = 2
"""


def cairn(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def last_line(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout.strip().splitlines()[-1])


def annotations(folder: Path, *changes: dict[str, object]) -> Path:
    for name in ("a.png", "b.png"):
        picture(folder, name, shade=ord(name[0]))
    return rows(folder / "screenspot_web.json", [ROW | change for change in changes])


def test_a_data_set_is_imported_and_shown(tmp_path: Path) -> None:
    path = annotations(tmp_path, {}, {"img_filename": "b.png"}, {"instruction": "back"})
    made = last_line(cairn("data", "import", "screenspot", path, "--out", tmp_path / "set", "--held-out", "0.5"))
    assert (made["states"], made["tasks"], made["damaged"]) == (3, 2, 0)
    shown = cairn("data", "show", tmp_path / "set")
    told = last_line(shown)
    assert told["sources"] == {"screenspot": 3}
    assert told["actions"] == {"click": 3}
    assert told["mean_steps"] == 1.5
    assert (told["held_out_tasks"], told["tasks"]) == (1, 2)
    assert "screenspot/web-icon" in shown.stdout


def test_the_first_damaged_row_ends_an_import_unless_it_may_be_skipped(tmp_path: Path) -> None:
    path = annotations(tmp_path, {}, {"bbox": [1]}, {"img_filename": "b.png"})
    refused = cairn("data", "import", "screenspot", path, "--out", tmp_path / "set")
    assert refused.exit_code == 2
    assert refused.stderr.strip() == (
        f"error: {path}:3: bbox must hold 4 numbers, got 1; --skip-damaged leaves such rows out, and counts them"
    )
    assert "holds no recorded states" in cairn("data", "show", tmp_path / "set").stderr
    skipped = cairn("data", "import", "screenspot", path, "--out", tmp_path / "set", "--skip-damaged")
    assert last_line(skipped)["damaged"] == 1
    assert f"left out: {path}:3: bbox must hold 4 numbers, got 1" in skipped.stderr
    again = cairn("data", "import", "screenspot", path, "--out", tmp_path / "set", "--skip-damaged")
    assert "holds recorded states already" in again.stderr


def test_experts_are_recorded_and_runs_too(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    words = ("data", "collect", tmp_path / "recipe.toml", "--task", "choose", "--per-template", "3")
    made = last_line(cairn(*words, "--out", tmp_path / "set"))
    assert made["tasks"] == 3
    run = last_line(cairn("demo", "collect", tmp_path / "recipe.toml", "--out", tmp_path / "run", "--quiet"))
    made = last_line(cairn("data", "record", tmp_path / "run", "--out", tmp_path / "other", "--experts"))
    assert made["states"] == run["environment_steps"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    assert "there is no" in cairn("data", "import", "aitw", tmp_path / "none", "--out", tmp_path / "set").stderr
    assert "holds no run" in cairn("data", "record", tmp_path, "--out", tmp_path / "set").stderr
    path = annotations(tmp_path, {})
    cairn("data", "import", "screenspot", path, "--out", tmp_path / "set")
    refused = cairn("data", "select", tmp_path / "set", "--rule", "best", "--policy", tmp_path, "--out", tmp_path / "o")
    assert "there is no rule 'best'; there are: ui-r1, gui-r1, bottleneck" in refused.stderr
    assert "Invalid value" in cairn("data", "import", "nothing", path, "--out", tmp_path / "o").stderr
