"""The commands that a new user types first: they explain themselves and do nothing they were not asked to."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(p for p in (ROOT / "scripts").iterdir() if p.is_file())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_a_script_is_executable_and_explains_itself(script: Path) -> None:
    assert os.access(script, os.X_OK)
    told = subprocess.run([script, "--help"], check=True, capture_output=True, text=True, timeout=20)
    assert told.stdout.startswith(f"usage: scripts/{script.name}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_a_script_stops_at_the_first_failure(script: Path) -> None:
    assert "set -euo pipefail" in script.read_text(encoding="utf-8").splitlines()[:4]


def test_setup_refuses_what_it_does_not_know() -> None:
    refused = subprocess.run(
        [ROOT / "scripts/setup", "--wrong"], check=False, capture_output=True, text=True, timeout=20
    )
    assert refused.returncode == 1
    assert "unknown option --wrong" in refused.stderr


def test_setup_names_a_browser_that_is_not_there(tmp_path: Path) -> None:
    environment = {**os.environ, "CAIRN_BROWSER": str(tmp_path / "chrome")}
    refused = subprocess.run(
        [ROOT / "scripts/setup"], check=False, capture_output=True, text=True, timeout=20, env=environment
    )
    assert refused.returncode == 1
    assert refused.stderr == f"setup: CAIRN_BROWSER={tmp_path}/chrome is no executable file\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sed", "3"], "unknown option --sed"),
        (["--seed"], "--seed needs a value"),
        (["--seed", "often"], "--seed takes a whole number, not often"),
        (["--minutes", "-3"], "--minutes takes a number, not -3"),
    ],
)
def test_quickstart_refuses_what_it_does_not_know_before_it_sets_anything_up(
    arguments: list[str], complaint: str
) -> None:
    refused = subprocess.run(
        [ROOT / "scripts/quickstart", *arguments], check=False, capture_output=True, text=True, timeout=20
    )
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == f"quickstart: {complaint}"
