"""Whole runs of vision-language models, and what is refused before one begins."""

import asyncio
import json
from pathlib import Path

import pytest

from cairn import open_run
from cairn.app.run import TrainRequest, train
from cairn.app.stages import lay_out, train_in
from cairn.app.tiny import make_named
from cairn.config import recipe as configuration
from cairn.config.stages import load_stages
from cairn.data.ledger import Quantity
from cairn.data.task import Purpose
from cairn.errors import ConfigError


def request(
    tmp_path: Path,
    model: Path,
    *,
    environment: str = "scripted",
    codec: str = "ui-tars",
    imitations: int = 2,
    more: str = "",
):
    path = tmp_path / "recipe.toml"
    path.write_text(
        f"""
        [environment]
        name = "{environment}"
        templates = ["{"count" if environment == "scripted" else "click-test-2"}"]
        browsers = 1
        [policy]
        model = "path"
        path = "{model}"
        codec = "{codec}"
        images = 2
        threads = 1
        dtype = "float32"
        max_answer_tokens = 24
        {more}
        [demonstrations]
        per_template = 2
        [imitation]
        updates = {imitations}
        batch_size = 8
        answers_per_turn = 2
        optimizer.learning_rate = 3e-3
        optimizer.warmup_steps = 1
        [reinforcement]
        updates = 2
        groups_per_update = 2
        group_size = 4
        format_penalty = 0.5
        [rollout]
        concurrency = 4
        invalid_limit = 2
        max_turns = 3
        [evaluation]
        per_template = 1
        """
    )
    config = configuration.load(path)
    return TrainRequest(config=config, folder=tmp_path / "run", resume=False, control=False, tensorboard=False)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    make_named("qwen2.5-vl", path, width=64, layers=2, image=112, seed=0)
    return path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_imitates_and_reinforces_and_saves_a_model_that_loads_again(tmp_path: Path, tiny: Path) -> None:
    wanted = request(tmp_path, tiny, imitations=40)
    asyncio.run(train(wanted))
    run = open_run(tmp_path / "run")
    played = [m.trajectory for g in run if g.plan.purpose is not Purpose.DEMONSTRATE for m in g.members]
    assert played
    assert any(len(turn.prompt.images) == 2 for trajectory in played for turn in trajectory.turns)
    assert run.ledger.total(Quantity.JUDGED, purpose=Purpose.TRAIN) == 16
    saved = tmp_path / "run" / "checkpoints" / "reinforce"
    again = request(tmp_path, saved).config
    asyncio.run(
        train(TrainRequest(config=again, folder=tmp_path / "again", resume=False, control=False, tensorboard=False))
    )


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_on_real_pages_goes_through_imitation_and_reinforcement(tmp_path: Path, tiny: Path) -> None:
    asyncio.run(train(request(tmp_path, tiny, environment="miniwob", imitations=30)))
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    phases = {e["fields"]["phase"] for e in events if e["kind"] == "update"}
    assert phases == {"imitate", "reinforce"}
    ledger = open_run(tmp_path / "run").ledger
    assert ledger.total(Quantity.JUDGED, purpose=Purpose.TRAIN) == 16
    assert ledger.total(Quantity.INFRASTRUCTURE_ERROR) == 0


def test_a_screenshot_over_the_limit_is_refused_before_anything_is_learned(tmp_path: Path, tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.max_image_tokens = 3"):
        asyncio.run(train(request(tmp_path, tiny, more="max_image_tokens = 3")))


def test_a_model_that_cannot_see_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="cannot see"):
        asyncio.run(train(request(tmp_path, tmp_path / "text")))
    assert not (tmp_path / "run").exists()


def test_a_vision_model_is_refused_for_a_codec_of_text(tmp_path: Path, tiny: Path) -> None:
    with pytest.raises(ConfigError, match="vision-language model: choose a dialect"):
        asyncio.run(train(request(tmp_path, tiny, codec="thinking")))
    assert not (tmp_path / "run").exists()


def test_a_tiny_model_is_made_only_of_known_families_in_an_empty_directory(tmp_path: Path) -> None:
    for family, folder, reason in (
        ("gpt", tmp_path / "new", "there are: qwen2.5-vl, qwen3-vl, idefics3, llava"),
        ("llava", tmp_path, "not empty"),
    ):
        (tmp_path / "something").touch()
        with pytest.raises(ConfigError, match=reason):
            make_named(family, folder, width=64, layers=2, image=112, seed=0)
    with pytest.raises(ConfigError, match="multiple of 32"):
        make_named("llava", tmp_path / "new", width=70, layers=2, image=112, seed=0)


RECORDED = """
[environment]
name = "scripted"
templates = ["choose"]
[policy]
model = "path"
path = "{model}"
codec = "{codec}"
think = {think}
instructions = false
threads = 1
dtype = "float32"
max_answer_tokens = 48
[recorded]
per_template = 4
[imitation]
updates = 1
[reinforcement]
scheduler = "recorded"
updates = 1
groups_per_update = 1
group_size = 2
[reward]
preset = "{preset}"
[evaluation]
per_template = 1
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("codec", "preset", "think"),
    [("gui-r1", "gui-r1", "true"), ("ui-tars", "ui-r1", "true"), ("mobilegym", "nothink", "false")],
)
def test_composed_rewards_of_answers_at_recorded_states(
    tmp_path: Path, tiny: Path, codec: str, preset: str, think: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECORDED.format(model=tiny, codec=codec, preset=preset, think=think))
    (place,) = lay_out(load_stages(path), tmp_path / "run")
    wanted = TrainRequest(config=place.config, folder=place.folder, resume=False, control=False, tensorboard=False)
    asyncio.run(train_in(place, wanted))
    groups = [g for g in open_run(tmp_path / "run") if g.plan.purpose is Purpose.TRAIN]
    assert groups
    for member in (m for group in groups for m in group.members):
        assert "format" in {term.name for term in member.terms}


@pytest.mark.parametrize(
    ("codec", "preset", "think", "said"),
    [
        ("qwen-mobile", "ui-r1", "true", "no thought before the action"),
        ("gui-r1", "ui-r1", "false", "no thought before the action"),
        ("qwen-computer", "nothink", "false", r"policy\.think = false needs"),
    ],
)
def test_a_form_that_the_dialect_has_not_is_refused_before_the_model_is_loaded(
    tmp_path: Path, tiny: Path, codec: str, preset: str, think: str, said: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECORDED.format(model=tiny, codec=codec, preset=preset, think=think))
    with pytest.raises(ConfigError, match=said):
        lay_out(load_stages(path), tmp_path / "run")
