"""Sets that stages make of the one that experts played: thoughts in the first, recovery in the second."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cairn.app.run import TrainRequest, config_of
from cairn.app.stages import Place, found, lay_out, train_in
from cairn.cli.main import app
from cairn.config.recipe import load
from cairn.config.stages import load_stages
from cairn.data.recorded import Recovery, recovery_of
from cairn.data.task import Split
from cairn.errors import ConfigError
from cairn.loop.course import PROGRESS
from cairn.loop.progress import Phase, read
from cairn.loop.summary import summarise
from cairn.store.recorded import RecordedSet
from cairn.testing.memory import MemoryEvents

pytestmark = pytest.mark.timeout(180)

RECIPE = """
[environment]
name = "scripted"
templates = ["count"]
[policy]
threads = 1
dtype = "float32"
[recorded]
per_template = 9
held_out = 0.34
[reinforcement]
scheduler = "recorded"
updates = 1
groups_per_update = 2
group_size = 4
[adaptive]
places = "element"
[evaluation]
per_template = 2
[[stages]]
name = "inject"
recorded.teacher.offline = true
imitation.updates = 1
reinforcement.updates = 0
[[stages]]
name = "deliberate"
recorded.recovery.answers = 64
"""


def written(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


async def trained(place: Place, *, resume: bool = False) -> list[str]:
    """What people were told meanwhile."""
    events = MemoryEvents()
    request = TrainRequest(
        config=place.config, folder=place.folder, resume=resume, control=False, tensorboard=False, sinks=(events,)
    )
    await train_in(place, request)
    return [str(event.fields["text"]) for event in events.events if event.kind == "notice"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Place, ...], list[list[str]]]:
    folder = tmp_path_factory.mktemp("done")
    places = lay_out(load_stages(written(folder)), folder / "run")
    return places, [asyncio.run(trained(place)) for place in places]


def test_a_stage_learns_from_the_set_that_it_made_of_the_experts(
    done: tuple[tuple[Place, ...], list[list[str]]],
) -> None:
    inject, deliberate = done[0]
    thoughts, recovery = (RecordedSet(place.folder / "derived") for place in (inject, deliberate))
    assert all(state.start.thought for state in thoughts.of(Split.TRAIN))
    assert {recovery_of(state.task.template.id) for state in recovery.everything()} == {None, *Recovery}
    assert config_of(inject.folder).recorded.path == str(inject.folder / "derived")
    progress = read(deliberate.folder / PROGRESS)
    for phase in (Phase.IMITATE, Phase.REINFORCE):
        measured = progress.final(phase, greedy=True)
        assert measured is not None
        assert set(measured.by_kind) == {"click", *Recovery}
    summary = summarise(progress)
    assert summary.recovery_bc is not None
    assert summary.recovery_gain == pytest.approx((summary.recovery_rl or 0.0) - summary.recovery_bc)
    assert summarise(read(inject.folder / PROGRESS)).recovery_rl is None


def test_what_was_made_is_told(done: tuple[tuple[Place, ...], list[list[str]]]) -> None:
    first, second = done[1]
    assert any(text.startswith("the teacher was right at ") for text in first)
    assert any(text.startswith("the policy hesitates at ") and "can be undone" in text for text in second)


async def test_a_set_that_is_there_is_not_made_again(done: tuple[tuple[Place, ...], list[list[str]]]) -> None:
    places = found(done[0][0].whole)
    told = await trained(places[1], resume=True)
    assert not any("hesitates" in text for text in told)


async def test_thoughts_and_recovery_can_be_of_one_set(
    tmp_path: Path, done: tuple[tuple[Place, ...], list[list[str]]]
) -> None:
    text = RECIPE.replace("recovery.answers = 64", "recovery = { answers = 64 }\nrecorded.teacher.offline = true")
    place = lay_out(load_stages(written(tmp_path, text)), tmp_path / "run")[0]
    await trained(place)
    last = found(tmp_path / "run")[1]
    await trained(last)
    states = list(RecordedSet(last.folder / "derived").of(Split.TRAIN))
    assert all(bool(state.start.thought) == (recovery_of(state.task.template.id) is None) for state in states)


def test_mistakes_need_a_policy_that_makes_them(tmp_path: Path) -> None:
    text = RECIPE.replace("recorded.teacher.offline = true", "recorded.recovery.answers = 4")
    with pytest.raises(ConfigError, match=r"needs a policy that makes mistakes: give policy\.start"):
        lay_out(load_stages(written(tmp_path, text)), tmp_path / "run")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("[recorded.teacher]\noffline = true", "need recorded.path or recorded.per_template"),
        ('[recorded]\nper_template = 2\nteacher = { url = "http://x/v1" }', "needs recorded.teacher.model"),
        ('[recorded]\nper_template = 2\nteacher = { url = "x/v1", model = "m" }', "must begin with http"),
        ('[recorded]\nper_template = 2\nteacher = { url = "http://x/v1", offline = true }', "choose either"),
        ("[recorded]\nper_template = 2\nrecovery = { answers = 1 }", "0 or at least 2"),
        ('[policy]\nhistory = "full"', 'needs policy.codec = "text" or "thinking"'),
        ("[evaluation]\nbudgets = [4, 4]", "different numbers of turns"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, lines))
    assert said in str(refused.value)


def test_the_same_is_done_at_the_command_line(tmp_path: Path, done: tuple[tuple[Place, ...], list[list[str]]]) -> None:
    inject = done[0][0]
    base = inject.whole / "recorded"
    runner = CliRunner()
    distilled = runner.invoke(app, ["data", "distil", str(base), "--offline", "--out", str(tmp_path / "thoughts")])
    told = json.loads(distilled.stdout.strip().splitlines()[-1])
    assert (told["kept"], told["dropped"]) == (told["asked"], {})
    recovered = runner.invoke(
        app,
        ["data", "recover", str(base), "--policy", str(inject.folder), "--answers", "64", "--out", str(tmp_path / "r")],
    )
    told = json.loads(recovered.stdout.strip().splitlines()[-1])
    assert told["mistakes"] == told["scenarios"] + sum(told["rejected"].values())
    refused = runner.invoke(app, ["data", "distil", str(base), "--out", str(tmp_path / "none")])
    assert refused.exit_code != 0
