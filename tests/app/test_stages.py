"""Recipes of several stages: each in its folder, from the policy of the one before; and recipes cut down."""

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from cairn import open_run
from cairn.app.run import TrainRequest, config_of
from cairn.app.stages import Place, found, lay_out, train_in
from cairn.cli.main import app
from cairn.cli.recipes import find, shipped
from cairn.config.recipe import load
from cairn.config.stages import load_stages
from cairn.data.task import Purpose, Split
from cairn.errors import ConfigError
from cairn.loop.course import PROGRESS
from cairn.loop.progress import Phase, read
from cairn.models.pixel.modeling import PixelForCausalLM
from cairn.store.recorded import RecordedSet

BASE = """
[environment]
name = "scripted"
templates = ["choose", "count"]
[policy]
threads = 1
dtype = "float32"
[recorded]
per_template = 6
held_out = 0.34
[imitation]
updates = 2
batch_size = 4
[reinforcement]
scheduler = "recorded"
updates = 1
groups_per_update = 2
group_size = 4
[adaptive]
places = "element"
[evaluation]
per_template = 2
"""
STAGES = """
[[stages]]
name = "aim"
reinforcement.updates = 2
[[stages]]
name = "haste"
policy.max_answer_tokens = 6
reinforcement.loss = "reinforce"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(BASE + STAGES)
    return path


def cairn(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def last_line(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])


def stages_in(told: dict[str, object]) -> list[str]:
    return [one["stage"] for one in cast("list[dict[str, str]]", told["stages"])]


def request(place: Place, *, resume: bool = False) -> TrainRequest:
    return TrainRequest(config=place.config, folder=place.folder, resume=resume, control=False, tensorboard=False)


def weights(folder: Path) -> float:
    model = PixelForCausalLM.from_pretrained(folder)
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())


# ── read ──────────────────────────────────────────────────────────────────────


def test_a_stage_says_what_differs_and_imitates_again_only_if_asked_to(recipe: Path) -> None:
    first, second = load_stages(recipe)
    assert (first.name, second.name) == ("aim", "haste")
    assert [s.config.reinforcement.updates for s in (first, second)] == [2, 1]
    assert [s.config.reinforcement.loss for s in (first, second)] == ["ppo", "reinforce"]
    assert [s.config.imitation.updates for s in (first, second)] == [2, 0]
    assert second.config.reinforcement.scheduler == "recorded"
    assert second.config.policy.max_answer_tokens == 6
    recipe.write_text(f"{BASE}{STAGES}imitation.updates = 5\n")
    assert load_stages(recipe)[1].config.imitation.updates == 5
    assert load(recipe) == load_stages(recipe)[0].config.model_copy(
        update={"reinforcement": load_stages(recipe)[0].config.reinforcement.model_copy(update={"updates": 1})}
    )


def test_an_override_is_for_every_stage_or_for_one(recipe: Path) -> None:
    both = load_stages(recipe, ("reinforcement.updates=7", "stages.haste.reinforcement.group_size=3"))
    assert [s.config.reinforcement.updates for s in both] == [7, 7]
    assert [s.config.reinforcement.group_size for s in both] == [4, 3]


def test_a_recipe_without_stages_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(BASE)
    (only,) = load_stages(path)
    assert only.name == ""
    assert only.config == load(path)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[[stages]]\nreinforcement.updates = 2\n", "stage 1 needs a name"),
        ('[[stages]]\nname = "A b"\n', "stage 1 needs a name"),
        ('[[stages]]\nname = "a"\n[[stages]]\nname = "a"\n', "two stages are called 'a'"),
        ('[[stages]]\nname = "a"\npolicy.start = "x"\n', "starts from the one before it"),
        ('[[stages]]\nname = "a"\nreinforcement.update = 2\n', "unknown key 'reinforcement.update'"),
        ('[stages]\nname = "a"\n', "stages are tables"),
    ],
)
def test_stages_that_make_no_sense_are_refused_in_a_sentence(recipe: Path, more: str, said: str) -> None:
    recipe.write_text(BASE + more)
    with pytest.raises(ConfigError, match=said):
        load_stages(recipe)


def test_an_override_of_a_stage_that_there_is_not_names_those_that_there_are(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"the recipe's stages: aim, haste"):
        load_stages(recipe, ("stages.rest.reinforcement.updates=7",))


def test_a_set_is_named_or_made_not_both(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"recorded\.per_template, for a new one, must be 0"):
        load_stages(recipe, ("recorded.path=sets/a",))


# ── cut down ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_is_valid_and_can_be_cut_down(name: str) -> None:
    whole, small = load_stages(find(name)), load_stages(find(name), smoke=True)
    assert [s.name for s in whole] == [s.name for s in small]
    for before, after in zip(whole, small, strict=True):
        assert before.config.reinforcement.scheduler == after.config.reinforcement.scheduler
        assert before.config.reward == after.config.reward
        assert bool(before.config.imitation.updates or before.config.imitation.minutes) == bool(
            after.config.imitation.updates
        )
        assert after.config.reinforcement.minutes is None
        learns = before.config.reinforcement.updates != 0
        assert learns <= (after.config.reinforcement.updates or 0) <= 4 * learns
        assert 1 <= len(after.config.environment.templates) <= 4


def test_what_a_recipe_says_of_its_smoke_test_counts_and_an_override_counts_more(recipe: Path) -> None:
    recipe.write_text(f"{BASE}{STAGES}[smoke.reinforcement]\ngroup_size = 3\nupdates = 1\n")
    small = load_stages(recipe, ("reinforcement.updates=4",), smoke=True)
    assert [s.config.reinforcement.group_size for s in small] == [3, 3]
    assert [s.config.reinforcement.updates for s in small] == [4, 4]
    assert [s.config.reinforcement.group_size for s in load_stages(recipe)] == [4, 4]


# ── run ───────────────────────────────────────────────────────────────────────


def test_stages_run_one_after_the_other_each_from_the_policy_before(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    many = ("--set", "reinforcement.group_size=8", "--set", "reinforcement.groups_at_most=24")  # one has a gradient
    told = last_line(cairn("train", recipe, "--out", folder, "--quiet", *many))
    assert stages_in(told) == ["aim", "haste"]
    first, second = found(folder)
    assert (first.folder, second.folder) == (folder / "1-aim", folder / "2-haste")
    ends = [read(place.folder / PROGRESS) for place in (first, second)]
    assert {end.phase for end in ends} == {Phase.DONE}
    assert [end.imitated for end in ends] == [2, 0]
    checkpoints = [place.folder / "checkpoints" for place in (first, second)]
    assert weights(checkpoints[1] / Phase.IMITATE) == weights(checkpoints[0] / Phase.REINFORCE)
    assert weights(checkpoints[0] / Phase.IMITATE) != weights(checkpoints[0] / Phase.REINFORCE)
    assert json.loads(last_of(cairn("eval", folder, "--quiet"))) == json.loads(
        last_of(cairn("eval", second.folder, "--quiet"))
    )
    assert (first.folder / "curve.png").is_file()


def last_of(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip().splitlines()[-1]


def test_the_set_that_experts_play_is_made_once_and_goes_with_the_run(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    last_line(cairn("train", recipe, "--out", folder, "--quiet"))
    made = RecordedSet(folder / "recorded")
    assert made.manifest.tasks == 12
    assert made.manifest.held_out_tasks == 4
    moved = folder.rename(tmp_path / "elsewhere")
    for place in found(moved):
        assert config_of(place.folder).recorded.path == str(moved / "recorded")
    last_line(cairn("eval", moved, "--quiet"))


def test_a_stage_learns_at_the_states_that_the_policy_before_it_is_undecided_at(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(f'{BASE}{STAGES}recorded.select = "gui-r1"\n')
    folder = tmp_path / "run"
    last_line(cairn("train", recipe, "--out", folder, "--quiet"))
    whole, own = RecordedSet(folder / "recorded"), RecordedSet(folder / "2-haste" / "derived")
    assert not (folder / "1-aim" / "derived").exists()
    assert config_of(folder / "2-haste").recorded.path == str(folder / "2-haste" / "derived")
    kept, known = ([state.name for state in one.of(Split.TRAIN)] for one in (own, whole))
    assert 0 < len(kept) <= len(known)
    assert set(kept) <= set(known)
    assert [s.name for s in own.of(Split.HELD_OUT)] == [s.name for s in whole.of(Split.HELD_OUT)]
    learned = {g.plan.task.id for g in open_run(folder / "2-haste") if g.plan.purpose is Purpose.TRAIN}
    assert learned <= {state.task.id for state in own.of(Split.TRAIN)}


def test_a_first_stage_has_no_policy_to_select_by(recipe: Path, tmp_path: Path) -> None:
    refused = cairn("train", recipe, "--out", tmp_path / "run", "--set", "recorded.select=gui-r1")
    assert refused.exit_code == 2
    assert "recorded.select needs a policy to ask" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_stopped_run_goes_on_in_the_stage_where_it_was(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = lay_out(load_stages(recipe), folder)
    asyncio.run(train_in(first, request(first)))
    done = (first.folder / PROGRESS).read_bytes()
    made = (folder / "recorded" / "set.json").read_bytes()
    assert not second.begun
    told = last_line(cairn("train", recipe, "--out", folder, "--resume", "--quiet"))
    assert stages_in(told) == ["aim", "haste"]
    assert (first.folder / PROGRESS).read_bytes() == done
    assert (folder / "recorded" / "set.json").read_bytes() == made
    assert read(second.folder / PROGRESS).phase is Phase.DONE


def test_one_run_makes_its_own_set_too(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(BASE)
    told = last_line(cairn("train", path, "--out", tmp_path / "run", "--smoke", "--quiet"))
    assert told["run"] == str(tmp_path / "run")
    assert RecordedSet(tmp_path / "run" / "recorded").manifest.tasks == 8
    last_line(cairn("train", path, "--out", tmp_path / "run", "--resume", "--quiet"))
    last_line(cairn("eval", tmp_path / "run", "--quiet"))


def test_a_stage_that_is_wrong_is_told_before_the_first_one_begins(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(f'{BASE}{STAGES}policy.verbs = ["clack"]\nrecorded.path = "nowhere"\nrecorded.per_template = 0\n')
    refused = cairn("train", recipe, "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert "nowhere holds no recorded states" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_with_stages_is_not_written_over_and_has_no_control(recipe: Path, tmp_path: Path) -> None:
    lay_out(load_stages(recipe), tmp_path / "run")
    assert "holds a run already" in cairn("train", recipe, "--out", tmp_path / "run").stderr
    assert "recipes without stages" in cairn("train", recipe, "--out", tmp_path / "new", "--control").stderr
    assert "keeps its recipe" in cairn("train", recipe, "--out", tmp_path / "run", "--resume", "--smoke").stderr


def test_the_stages_of_a_recipe_are_shown(recipe: Path) -> None:
    shown = last_line(cairn("config", "show", recipe, "--json"))
    assert list(shown) == ["aim", "haste"]
    text = cairn("config", "show", recipe).stdout
    assert "# stage aim" in text
    assert text.count("[reinforcement]") == 2
