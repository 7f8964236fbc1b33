"""Recipes are strict: what is not known is named, with what was probably meant."""

from pathlib import Path

import pytest

from cairn.config.recipe import RunConfig, known_keys, load, to_toml
from cairn.errors import ConfigError

RECIPES = sorted((Path(__file__).parents[1] / "src" / "cairn" / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_shipped_recipe_parses(path: Path) -> None:
    load(path)


def test_there_are_recipes() -> None:
    assert RECIPES


def test_a_resolved_configuration_reads_back_to_itself(tmp_path: Path) -> None:
    config = load(
        RECIPES[0], ["reinforcement.group_size=4", "policy.model=path", "policy.codec=text", 'policy.path="a\\\\b\\"c"']
    )
    path = tmp_path / "resolved.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load(path) == config


def test_an_unknown_key_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[reinforcement]\nclip_hihg = 0.3\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"unknown key 'reinforcement.clip_hihg'; did you mean 'reinforcement.clip_high'"
    ):
        load(path)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("reinforcement.group_size=0", "reinforcement.group_size: input should be greater than or equal to 1"),
        ("reinforcement.group_size=1", "reinforcement.group_size = 1 leaves nothing to compare with"),
        ("reinforcement.group_size=many", "reinforcement.group_size: input should be a valid integer"),
        ("group_size", "expected key=value"),
        ("seed.x=1", "seed is not a table"),
    ],
)
def test_a_wrong_override_says_what_was_expected(override: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("seed = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load(path, [override])


def test_a_missing_or_broken_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")
    path = tmp_path / "broken.toml"
    path.write_text("a = = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(path)


def test_known_keys_are_the_leaves() -> None:
    assert "imitation.optimizer.learning_rate" in known_keys()
    assert "imitation.optimizer" not in known_keys()
    assert RunConfig() == RunConfig()
