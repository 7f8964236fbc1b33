"""The settings that docs/methods.md names exist, and go together as its rows say."""

import re
import tomllib
from pathlib import Path

import pytest

from cairn.config import recipe as configuration

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs" / "methods.md").read_text().splitlines() if re.search(r"`(?:\w+\.)+\w+=", line)]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip().partition(" (")[0] for row in ROWS])
def test_a_methods_settings_are_those_of_a_recipe(row: str) -> None:
    settings = re.findall(r"`((?:\w+\.)+\w+=[^`]+)`", row)
    base = ROOT / "src" / "cairn" / "recipes" / "quickstart.toml"
    config = configuration.load(base, ("reinforcement.negative_scale=1", *settings))
    written = configuration.to_toml(config)
    for setting in settings:
        key, _, value = setting.partition("=")
        name = key.rpartition(".")[2]
        if "{" in value:  # tables are written with all of their keys
            assert [one["kind"] for one in tomllib.loads(setting)["reward"]["terms"]] == [
                t.kind for t in config.reward.terms
            ]
            continue
        assert re.search(rf"^{name} = {re.escape(value)}(\.0)?$", written, re.MULTILINE), setting
