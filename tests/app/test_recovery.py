"""Recovery scenarios from end to end: a policy's own mistakes, made and undone in the environment, and recorded."""

import asyncio
from pathlib import Path

import pytest

from cairn.app.datasets import collect_recorded
from cairn.app.recovery import SOURCE, Recovered, RecoverRequest, recover
from cairn.app.run import EvaluateRequest, TrainRequest, evaluate, saved_policy, train
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig, answering
from cairn.data.action import Click
from cairn.data.ids import ElementId
from cairn.data.recorded import Recovery, recovery_of
from cairn.data.task import Split
from cairn.errors import ConfigError
from cairn.store.recorded import Division, RecordedSet

pytestmark = pytest.mark.timeout(180)

RECIPE = """
[environment]
name = "scripted"
templates = ["count"]
[policy]
threads = 1
dtype = "float32"
[demonstrations]
per_template = 9
[imitation]
updates = 0
[reinforcement]
updates = 0
[evaluation]
per_template = 1
[adaptive]
places = "element"
"""


def config_in(folder: Path) -> RunConfig:
    path = folder / "recipe.toml"
    path.write_text(RECIPE)
    return configuration.load(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of experts' ways, and the run of a policy that clicks anywhere."""
    folder = tmp_path_factory.mktemp("base")
    config = config_in(folder)
    asyncio.run(collect_recorded(config, folder / "set", division=Division(held_out=0.34, seed=1)))
    request = TrainRequest(config=config, folder=folder / "run", resume=False, control=False, tensorboard=False)
    asyncio.run(train(request))
    return folder


def request_of(base: Path, out: Path, **changed: object) -> RecoverRequest:
    fields = {
        "folder": base / "set",
        "config": config_in(base),
        "saved": saved_policy(base / "run", "latest"),
        "out": out,
        "answers": 64,  # a new policy hits a button now and then
        **changed,
    }
    return RecoverRequest(**fields)  # pyright: ignore[reportArgumentType]  (a test's fields)


@pytest.fixture(scope="module")
def made(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recovered]:
    out = tmp_path_factory.mktemp("made") / "recovery"
    return out, asyncio.run(recover(request_of(base, out)))


def test_a_mistake_becomes_two_states_with_the_history_that_led_there(base: Path, made: tuple[Path, Recovered]) -> None:
    found = RecordedSet(made[0])
    states = [state for state in found.everything() if state.source == SOURCE]
    assert states
    own = {state.name: state for state in RecordedSet(base / "set").everything()}
    for state in states:
        first = own[state.episode.rpartition("~")[0]]
        deeds = state.start.history[len(first.start.history) :]
        assert state.start.goal == first.start.goal
        assert deeds[0].observation.digest == first.start.observation.digest
        if recovery_of(state.task.template.id) is Recovery.ESCAPE:
            assert (len(deeds), state.step) == (1, 0)
            assert state.start.expert == Click(ElementId(1))  # counting was too far down
            assert state.start.observation.digest != first.start.observation.digest
        else:
            assert (len(deeds), state.step) == (2, 1)
            assert deeds[1].action == Click(ElementId(1))
            assert state.start.expert == first.start.expert
            assert state.start.observation.digest == first.start.observation.digest


def test_what_became_of_every_mistake_is_counted(made: tuple[Path, Recovered]) -> None:
    out, report = made
    escapes = [s for s in RecordedSet(out).everything() if recovery_of(s.task.template.id) is Recovery.ESCAPE]
    assert report.scenarios == len(escapes) > 0
    assert report.mistakes == report.scenarios + sum(count for _, count in report.rejected)
    assert 0 < report.hesitant <= report.asked
    assert report.lost_ways == ()
    assert not (out / "states").exists()


def test_scenarios_stand_on_the_side_of_the_split_that_their_task_stood_on(
    base: Path, made: tuple[Path, Recovered]
) -> None:
    held_out = {state.task.index for state in RecordedSet(base / "set").of(Split.HELD_OUT)}
    found = RecordedSet(made[0])
    assert {s.task.index for s in found.of(Split.HELD_OUT)} <= held_out
    assert not {s.task.index for s in found.of(Split.TRAIN)} & held_out
    assert made[1].held_out > 0
    assert found.manifest.held_out_tasks == len({s.task.id for s in found.of(Split.HELD_OUT)})


async def test_an_evaluation_tells_escaping_and_coming_back_apart(base: Path, made: tuple[Path, Recovered]) -> None:
    request = EvaluateRequest(
        config=answering(config_in(base), made[0]),
        saved=saved_policy(base / "run", "latest"),
        split=Split.HELD_OUT,
        per_template=4,
        tries=1,
    )
    sampled, _ = await evaluate(request)
    assert {kind.kind for kind in sampled.kinds} == {"click", *Recovery}


async def test_scenarios_can_stand_alone(base: Path, tmp_path: Path) -> None:
    await recover(request_of(base, tmp_path / "alone", alone=True))
    assert {state.source for state in RecordedSet(tmp_path / "alone").everything()} == {SOURCE}


async def test_a_set_of_tasks_that_the_environment_lacks_is_refused(base: Path, tmp_path: Path) -> None:
    config = config_in(base)
    elsewhere = config.model_copy(update={"environment": config.environment.model_copy(update={"name": "states"})})
    with pytest.raises(ConfigError, match="no whole way through a task of states"):
        await recover(request_of(base, tmp_path / "out", config=elsewhere))
    assert not (tmp_path / "out" / "set.json").exists()
