"""Whole runs with the real pixel policy on scripted pages: end to end, interrupted, resumed, evaluated again."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from cairn import open_run
from cairn.app.run import EvaluateRequest, TrainRequest, collect_demonstrations, evaluate, saved_policy, train
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.ledger import Quantity, of_groups
from cairn.data.task import Purpose, Split
from cairn.data.trajectory import LostTrajectory, ScoredTrajectory
from cairn.errors import ConfigError
from cairn.loop.progress import Phase, Progress
from cairn.ports import Event
from cairn.store.run import RunWriter
from cairn.testing.memory import MemoryEvents


def recipe(tmp_path: Path, *, seed: int = 0, settings: tuple[str, ...] = ()) -> RunConfig:
    """One trajectory at a time and one thread, so that every batch of the engine holds the same rows every time."""
    path = tmp_path / "recipe.toml"
    path.write_text(
        f"""
        seed = {seed}
        [environment]
        name = "scripted"
        templates = ["choose"]
        [policy]
        threads = 1
        dtype = "float32"
        [demonstrations]
        per_template = 4
        [imitation]
        updates = 2
        batch_size = 4
        [reinforcement]
        updates = 2
        groups_per_update = 2
        group_size = 8
        [rollout]
        concurrency = 1
        invalid_limit = 3
        max_turns = 2
        [evaluation]
        per_template = 2
        """
    )
    return configuration.load(path, settings)


class Interrupter:
    """Cancels the run a moment after the given update, once."""

    def __init__(self, phase: Phase, number: int, *, after: float) -> None:
        self._wanted = (phase, number)
        self._after = after
        self.struck = False

    def emit(self, event: Event) -> None:
        if event.kind == "update" and (event.fields["phase"], event.fields["number"]) == self._wanted:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(self._after, task.cancel)
            self.struck = True


def request(
    config: RunConfig, folder: Path, *, resume: bool = False, sinks: tuple[Interrupter | MemoryEvents, ...] = ()
):
    return TrainRequest(config=config, folder=folder, resume=resume, control=False, tensorboard=False, sinks=sinks)


def weights(folder: Path, name: str = "reinforce") -> str:
    return hashlib.sha256((folder / "checkpoints" / name / "model.safetensors").read_bytes()).hexdigest()


def moments(folder: Path, name: str = "reinforce") -> str:
    return hashlib.sha256((folder / "checkpoints" / name / "optimiser.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunConfig, Progress]:
    """One run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    config = recipe(folder)
    return folder / "run", config, asyncio.run(train(request(config, folder / "run")))


@pytest.mark.parametrize(
    ("phase", "after"),
    [(Phase.IMITATE, 0.02), (Phase.REINFORCE, 0.0), (Phase.REINFORCE, 0.1)],
)
def test_an_interrupted_run_ends_bit_for_bit_as_the_undisturbed_one(
    tmp_path: Path, whole: tuple[Path, RunConfig, Progress], phase: Phase, after: float
) -> None:
    undisturbed, config, done = whole
    interrupter = Interrupter(phase, 1, after=after)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(train(request(config, tmp_path / "run", sinks=(interrupter,))))
    assert interrupter.struck
    resumed = asyncio.run(train(request(config, tmp_path / "run", resume=True)))
    assert weights(tmp_path / "run") == weights(undisturbed)
    assert moments(tmp_path / "run") == moments(undisturbed)
    successes = [(m.phase, m.greedy, m.by_template) for m in done.measured]
    assert [(m.phase, m.greedy, m.by_template) for m in resumed.measured] == successes


def test_learning_changes_the_policy_in_both_phases(whole: tuple[Path, RunConfig, Progress]) -> None:
    folder, _, _ = whole
    assert len({weights(folder, name) for name in ("demonstrate", "imitate", "reinforce")}) == 3


@pytest.mark.parametrize(
    "estimator", ["dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "remax", "gae", "gigpo"]
)
def test_the_estimator_decides_what_is_learned(
    whole: tuple[Path, RunConfig, Progress], tmp_path: Path, estimator: str
) -> None:
    config = recipe(tmp_path, settings=(f"reinforcement.estimator={estimator}",))
    asyncio.run(train(request(config, tmp_path / "run")))
    assert weights(tmp_path / "run", "imitate") == weights(whole[0], "imitate")
    assert weights(tmp_path / "run") != weights(whole[0])


def test_remaxs_greedy_rollouts_are_played_and_counted_beside_the_groups(tmp_path: Path) -> None:
    settings = ("reinforcement.estimator=remax", "reinforcement.group_size=1", "reinforcement.groups_per_update=3")
    asyncio.run(train(request(recipe(tmp_path, settings=settings), tmp_path / "run")))
    ledger = open_run(tmp_path / "run").ledger
    assert ledger.total(Quantity.GROUPS, purpose=Purpose.BASELINE) == 6
    assert ledger.total(Quantity.ENVIRONMENT_STEPS, purpose=Purpose.BASELINE) >= 6


REWARDED = ("reinforcement.kl=0.1", "reinforcement.kl_in=reward")


@pytest.mark.parametrize(
    "settings",
    [
        ("reinforcement.estimator=gae", "reinforcement.critic.alone=1", *REWARDED),
        ("reinforcement.estimator=reinforce_pp", "reinforcement.kl_estimator=k2", *REWARDED),
        REWARDED,
        ("reinforcement.estimator=rft", "reinforcement.loss=reinforce"),
        ("reinforcement.estimator=gigpo", "reinforcement.anchors=picture", "reinforcement.deviation=unbiased"),
    ],
)
def test_an_interrupted_run_of_any_method_ends_as_the_undisturbed_one(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    config = recipe(tmp_path, settings=settings)
    asyncio.run(train(request(config, tmp_path / "whole")))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(train(request(config, tmp_path / "run", sinks=(Interrupter(Phase.REINFORCE, 1, after=0.0),))))
    asyncio.run(train(request(config, tmp_path / "run", resume=True)))
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert weights(tmp_path / "run") != weights(tmp_path / "run", "imitate")
    if "reinforcement.estimator=gae" in settings:
        saved = [
            (tmp_path / which / "checkpoints/reinforce/critic.safetensors").read_bytes() for which in ("run", "whole")
        ]
        assert saved[0] == saved[1]


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto", "rft"])
def test_a_run_can_learn_from_what_another_one_has_stored(
    whole: tuple[Path, RunConfig, Progress], tmp_path: Path, loss: str
) -> None:
    settings = (
        *(
            ("reinforcement.estimator=rft", "reinforcement.loss=reinforce")
            if loss == "rft"
            else (f"reinforcement.loss={loss}",)
        ),
        "reinforcement.scheduler=stored",
        f"stored.run={whole[0]}",
        f"policy.start={whole[0] / 'checkpoints' / 'imitate'}",
        "imitation.updates=0",
        "demonstrations.per_template=0",
    )
    asyncio.run(train(request(recipe(tmp_path, settings=settings), tmp_path / "run")))
    ledger = open_run(tmp_path / "run").ledger
    assert ledger.total(Quantity.GROUPS, purpose=Purpose.TRAIN) == 0  # nothing was played to learn from
    assert ledger.total(Quantity.SAMPLES_IN_UPDATES) > 0
    assert weights(tmp_path / "run") != weights(whole[0], "imitate")


def test_a_stored_run_of_another_kind_of_policy_is_refused_before_anything_is_made(
    whole: tuple[Path, RunConfig, Progress], tmp_path: Path
) -> None:
    settings = ("reinforcement.loss=dpo", "reinforcement.scheduler=stored", f"stored.run={whole[0]}")
    speaks = ("policy.model=smollm2", "policy.codec=text")
    with pytest.raises(ConfigError, match=r'played with policy.codec = "pixel", whose tokens mean nothing'):
        asyncio.run(train(request(recipe(tmp_path, settings=(*settings, *speaks)), tmp_path / "run")))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_a_run_can_learn_from_preferences(whole: tuple[Path, RunConfig, Progress], tmp_path: Path, loss: str) -> None:
    config = recipe(tmp_path, settings=(f"reinforcement.loss={loss}", "reinforcement.pairs_per_group=1"))
    asyncio.run(train(request(config, tmp_path / "run")))
    ledger = open_run(tmp_path / "run").ledger
    assert ledger.total(Quantity.SAMPLES_IN_UPDATES) == ledger.total(Quantity.SEQUENCES_IN_UPDATES)
    groups, samples = ledger.total(Quantity.GROUPS_IN_UPDATES), ledger.total(Quantity.SAMPLES_IN_UPDATES)
    assert 0 < 2 * groups <= samples <= 4 * groups  # a pair of each, whose sides take one turn or two
    assert weights(tmp_path / "run", "imitate") == weights(whole[0], "imitate")
    assert weights(tmp_path / "run") not in {weights(whole[0]), weights(tmp_path / "run", "imitate")}


def test_a_correction_that_drops_every_token_teaches_nothing(tmp_path: Path) -> None:
    bounds = ("reinforcement.correction_low=2", "reinforcement.correction_high=3")
    config = recipe(tmp_path, settings=("reinforcement.correction=token_masked", *bounds))
    asyncio.run(train(request(config, tmp_path / "run")))
    assert weights(tmp_path / "run") == weights(tmp_path / "run", "imitate")


def test_the_run_can_be_read_and_its_ledger_is_what_was_stored(whole: tuple[Path, RunConfig, Progress]) -> None:
    folder, config, _ = whole
    run = open_run(folder)
    assert configuration.to_toml(config) == run.recipe
    counted = of_groups(run)
    for purpose in (Purpose.TRAIN, Purpose.EVALUATE, Purpose.DEMONSTRATE):
        for quantity in (Quantity.GROUPS, Quantity.JUDGED, Quantity.ENVIRONMENT_STEPS):
            assert run.ledger.total(quantity, purpose=purpose) == counted.total(quantity, purpose=purpose) > 0
    assert run.ledger.total(Quantity.UPDATES) <= 2


def test_a_saved_policy_evaluates_to_what_the_run_measured(whole: tuple[Path, RunConfig, Progress]) -> None:
    folder, config, done = whole
    wanted = EvaluateRequest(
        config=config, saved=saved_policy(folder, "reinforce"), split=Split.HELD_OUT, per_template=2, tries=1
    )
    sampled, greedy = asyncio.run(evaluate(wanted))
    for report in (sampled, greedy):
        measured = done.final(Phase.REINFORCE, greedy=report.greedy)
        assert measured is not None
        assert {s.template: s.success for s in report.scores} == dict(measured.by_template)


def test_the_latest_policy_is_the_one_that_the_progress_names(whole: tuple[Path, RunConfig, Progress]) -> None:
    folder, _, done = whole
    assert done.checkpoint is not None
    assert saved_policy(folder, "latest") == folder / "checkpoints" / done.checkpoint


def test_a_run_goes_on_from_collected_demonstrations(tmp_path: Path) -> None:
    config = recipe(tmp_path)
    shown = asyncio.run(collect_demonstrations(config, tmp_path / "run"))
    assert (shown["success"], shown["infrastructure_error"]) == (4, 0)
    events = MemoryEvents()
    short = config.model_copy(update={"reinforcement": config.reinforcement.model_copy(update={"updates": 0})})
    asyncio.run(train(request(short, tmp_path / "run", resume=True, sinks=(events,))))
    played = [g for g in open_run(tmp_path / "run") if g.plan.purpose is Purpose.DEMONSTRATE]
    assert len(played) == 4


async def test_every_trajectory_of_a_policy_is_kept_the_moment_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[ScoredTrajectory | LostTrajectory] = []
    note = RunWriter.note

    def noting(self: RunWriter, result: ScoredTrajectory | LostTrajectory) -> None:
        noted.append(result)
        note(self, result)

    monkeypatch.setattr(RunWriter, "note", noting)
    await train(
        TrainRequest(config=recipe(tmp_path), folder=tmp_path / "run", resume=False, control=False, tensorboard=False)
    )
    played = [m for g in open_run(tmp_path / "run") if g.plan.purpose is not Purpose.DEMONSTRATE for m in g.members]
    assert len(noted) == len(played) > 0
