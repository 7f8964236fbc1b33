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


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["policy.lora_rank=8"], "policy.lora_rank is for language models"),
        (["policy.gradient_checkpointing=true"], "policy.gradient_checkpointing is for language models"),
        (
            ["policy.model=smollm2", "policy.codec=text", "policy.lora_alpha=8"],
            "policy.lora_alpha needs policy.lora_rank",
        ),
        (
            ["policy.model=smollm2", "policy.codec=text", 'policy.lora_targets=["q_proj"]'],
            "policy.lora_targets needs policy.lora_rank",
        ),
        (["imitation.optimizer.schedule=cosine"], 'imitation.optimizer.schedule = "cosine" needs imitation.updates'),
        (
            ["reinforcement.optimizer.schedule=linear", "reinforcement.minutes=3"],
            'reinforcement.optimizer.schedule = "linear" needs reinforcement.updates',
        ),
        (["reinforcement.reference_ema=0.9"], "reinforcement.reference_ema needs reinforcement.kl"),
        (["reinforcement.reference_every=9"], "reinforcement.reference_every needs reinforcement.kl"),
        (
            ["reinforcement.kl=0.1", "reinforcement.reference_every=9", "reinforcement.reference_ema=0.9"],
            "reinforcement.reference_ema and reinforcement.reference_every exclude each other",
        ),
        (["adaptive.tau_low=0.9", "adaptive.tau_high=0.1"], "adaptive.tau_low must not be above adaptive.tau_high"),
        (["adaptive.threshold=2"], "adaptive.threshold = 2.0 leaves no pivot"),
        (["tracks.shrink_above=0.5"], 'tracks.shrink_above is of reinforcement.scheduler = "tasks", not "variance"'),
        (["tracks.cool_down_after=2"], 'tracks.cool_down_after is of reinforcement.scheduler = "tasks"'),
        (["adaptive.weighted=true"], 'adaptive.weighted is of reinforcement.scheduler = "pivots"'),
        (
            ["reinforcement.scheduler=pivots", "tracks.per_template=1", "replay.capacity=8"],
            "needs replay.capacity = 0",
        ),
        (["replay.first=true"], "replay.trigger and replay.first need replay.capacity"),
        (["reinforcement.loss=dpo", "reinforcement.estimator=rloo"], '"dpo" needs reinforcement.estimator unset'),
        (["reinforcement.loss=kto", "reinforcement.estimator=gae"], '"kto" needs reinforcement.estimator unset'),
        (
            ["reinforcement.loss=gspo", "reinforcement.dual_clip=3"],
            'reinforcement.dual_clip is of reinforcement.loss = "ppo", not "gspo"',
        ),
        (
            ["reinforcement.norm=24"],
            'reinforcement.norm is of reinforcement.aggregation = "seq_mean_token_sum_norm", not "trajectory_mean"',
        ),
        (
            ["reinforcement.aggregation=seq_mean_token_sum_norm"],
            'reinforcement.aggregation = "seq_mean_token_sum_norm" needs reinforcement.norm',
        ),
        (
            ["reinforcement.correction=token_masked", "reinforcement.correction_low=6"],
            'correction_low must not be above .*; reinforcement.correction = "token_masked" has 6 and 5',
        ),
        (
            ["reinforcement.correction=geometric_mask", "reinforcement.correction_high=0.9"],
            'correction_low must not be above .*; reinforcement.correction = "geometric_mask" has 0.999 and 0.9',
        ),
        (
            ["reinforcement.correction=token_truncated", "reinforcement.correction_low=0.5"],
            'reinforcement.correction = "token_truncated" needs reinforcement.correction_low unset',
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(overrides: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("seed = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load(path, overrides)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
@pytest.mark.parametrize(
    "key", ["policy.temperature", "reinforcement.minutes", "imitation.optimizer.max_grad_norm", "adaptive.threshold"]
)
def test_numbers_are_finite(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("seed = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{key}: input should be a finite number"):
        load(path, [f"{key}={value}"])


@pytest.mark.parametrize("settings", ['kind = "success"\nweight = inf', 'kind = "format_error"\nweight = nan'])
def test_weights_of_rewards_are_finite(settings: str, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f"[[reward.terms]]\n{settings}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="weight: input should be a finite number"):
        load(path)


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_a_default_that_a_loss_passes_over_may_be_written_down(loss: str, tmp_path: Path) -> None:
    path, resolved = tmp_path / "r.toml", tmp_path / "resolved.toml"
    path.write_text("seed = 1\n", encoding="utf-8")
    resolved.write_text(to_toml(load(path, [f"reinforcement.loss={loss}"])), encoding="utf-8")
    assert 'estimator = "grpo"' in resolved.read_text()
    assert load(resolved).reinforcement.loss == loss


def test_a_rate_may_fall_where_the_number_of_updates_is_known(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[imitation]\nupdates = 5\noptimizer.schedule = 'cosine'\n", encoding="utf-8")
    assert load(path).imitation.optimizer.schedule == "cosine"
    load(path, ["reinforcement.loss=dpo", "reinforcement.reference_ema=0.99"])
