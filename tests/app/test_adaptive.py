"""Runs that learn the same tasks over and over, from their roots or from the states on their experts' ways."""

from pathlib import Path

import pytest

from cairn import open_run
from cairn.app.pictures import draw_starts
from cairn.app.run import TrainRequest, check_ready, train
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.ledger import Quantity
from cairn.data.task import FromSnapshot, Purpose, Recorded, Root, Split
from cairn.data.trajectory import Outcome
from cairn.errors import ConfigError
from cairn.loop.course import PROGRESS
from cairn.loop.progress import Phase, read
from cairn.testing.scripted import ScriptedEnvironment
from scripted_recipe import SCRIPTED


def recipe(tmp_path: Path, *settings: str) -> RunConfig:
    path = tmp_path / "recipe.toml"
    path.write_text(
        SCRIPTED
        + """
        [demonstrations]
        per_template = 2
        [imitation]
        updates = 1
        batch_size = 4
        [reinforcement]
        updates = 20
        groups_per_update = 2
        group_size = 4
        scheduler = "adaptive"
        [tracks]
        per_template = 3
        [adaptive]
        signal = "all"
        answers = 4
        suffixes = 4
        estimate = 2
        estimate_every = 1
        rescue_after = 1
        [snapshots]
        store = "replay"
        [rollout]
        invalid_limit = 3
        max_turns = 4
        [evaluation]
        per_template = 1
        """
    )
    return configuration.load(path, settings)


async def trained(config: RunConfig, folder: Path, *, resume: bool = False) -> None:
    request = TrainRequest(config=config, folder=folder, resume=resume, control=False, tensorboard=False)
    assert (await train(request)).phase is Phase.DONE


async def test_tasks_are_surveyed_estimated_and_learned_from_the_states_on_their_experts_ways(tmp_path: Path) -> None:
    await trained(recipe(tmp_path), tmp_path / "run")
    run = open_run(tmp_path / "run")
    shown = [g for g in run if g.plan.purpose is Purpose.DEMONSTRATE]
    assert sorted(g.plan.task.index for g in shown) == [0, 1, 2, 3, 4]
    learned = [g for g in run if g.plan.purpose in {Purpose.TRAIN, Purpose.PROBE, Purpose.REESTIMATE}]
    assert {g.plan.task.index for g in learned} == {2, 3, 4}
    assert {g.plan.task.split for g in learned} == {Split.TRAIN}
    assert {type(g.plan.start) for g in learned} == {Root, Recorded, FromSnapshot}
    ledger = run.ledger
    turns = sum(len(m.trajectory.turns) for g in shown for m in g.members if g.plan.task.index >= 2)
    assert ledger.total(Quantity.SAVES) == turns  # a state before every action of the experts' ways
    restores = sum(g.plan.group_size for g in learned if isinstance(g.plan.start, FromSnapshot))
    assert ledger.total(Quantity.RESTORES) == restores
    assert ledger.total(Quantity.ENVIRONMENT_STEPS, purpose=Purpose.REESTIMATE) > 0
    assert {type(g.plan.start) for g in learned if g.plan.purpose is Purpose.TRAIN} <= {Recorded, FromSnapshot, Root}
    picture = draw_starts(tmp_path / "run", read(tmp_path / "run" / PROGRESS).scheduler, title="run")
    assert picture is not None
    assert picture.read_bytes().startswith(b"\x89PNG")


async def test_estimates_are_no_lessons(tmp_path: Path) -> None:
    config = recipe(tmp_path, "reinforcement.updates=1")
    await trained(config, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert {g.plan.purpose for g in run if g.plan.purpose is not Purpose.DEMONSTRATE} == {
        Purpose.REESTIMATE,
        Purpose.EVALUATE,
    }
    assert run.ledger.total(Quantity.UPDATES) == 0


async def test_vanilla_learns_the_same_tasks_whole(tmp_path: Path) -> None:
    config = recipe(tmp_path, "reinforcement.scheduler=tasks", "snapshots.store=none", "replay.capacity=2")
    await trained(config, tmp_path / "run")
    learned = [g for g in open_run(tmp_path / "run") if g.plan.purpose is Purpose.TRAIN]
    assert {g.plan.task.index for g in learned} == {2, 3, 4}
    assert {type(g.plan.start) for g in learned} == {Root}
    assert len(learned) == 40


async def test_groups_without_a_gradient_are_replaced_up_to_a_bound(tmp_path: Path) -> None:
    settings = ("reinforcement.scheduler=tasks", "snapshots.store=none", "reinforcement.updates=3")
    await trained(recipe(tmp_path, *settings, "reinforcement.groups_at_most=6"), tmp_path / "run")
    rounds = [logged.event.fields for logged in open_run(tmp_path / "run").events() if logged.event.kind == "round"]
    played = [(one["groups"], one["informative_groups"]) for one in rounds]
    assert all(groups == 6 or informative == 2 for groups, informative in played)
    assert max(int(str(groups)) for groups, _ in played) > 2  # of the whole rollouts of this policy, some are all alike


async def test_tasks_that_the_policy_never_solves_are_left_out(tmp_path: Path) -> None:
    settings = ("reinforcement.scheduler=tasks", "snapshots.store=none", "tracks.valuable_tries=3")
    await trained(recipe(tmp_path, *settings), tmp_path / "run")
    groups = list(open_run(tmp_path / "run"))
    tried = [g for g in groups if g.plan.purpose is Purpose.REESTIMATE]
    assert [g.plan.group_size for g in tried] == [3, 3, 3]
    solved = {g.plan.task.index for g in tried if any(m.outcome is Outcome.SUCCESS for m in g.members)}
    assert 0 < len(solved) < 3
    assert {g.plan.task.index for g in groups if g.plan.purpose is Purpose.TRAIN} == solved
    before = len(tried)
    await trained(recipe(tmp_path, *settings), tmp_path / "run", resume=True)
    assert len([g for g in open_run(tmp_path / "run") if g.plan.purpose is Purpose.REESTIMATE]) == before


async def test_where_the_policy_solves_nothing_no_task_is_valuable(tmp_path: Path) -> None:
    settings = (
        "reinforcement.scheduler=tasks",
        "snapshots.store=none",
        "tracks.valuable_tries=1",
        "rollout.max_turns=1",
    )
    with pytest.raises(ConfigError, match="0 of 3 tasks were solved at least once in 1 tries"):
        await trained(recipe(tmp_path, *settings), tmp_path / "run")


async def test_a_resumed_run_plays_no_expert_twice(tmp_path: Path) -> None:
    config = recipe(tmp_path)
    await trained(config, tmp_path / "run")
    before = open_run(tmp_path / "run").ledger.total(Quantity.SAVES)
    await trained(config, tmp_path / "run", resume=True)
    assert open_run(tmp_path / "run").ledger.total(Quantity.SAVES) == before > 0


@pytest.mark.parametrize(
    ("setting", "said"),
    [("tracks.per_template=0", "needs tracks.per_template"), ("snapshots.store=none", "needs snapshots.store")],
)
def test_what_adaptive_training_needs_is_said_at_once(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        recipe(tmp_path, setting)


async def test_answers_at_pivots_execute_nothing_and_may_go_on_from_another_runs_policy(tmp_path: Path) -> None:
    base = tmp_path / "base"
    await trained(recipe(tmp_path, "reinforcement.updates=0"), base)
    settings = ("reinforcement.scheduler=pivots", "imitation.updates=0", f'policy.start="{base}/checkpoints/imitate"')
    await trained(recipe(tmp_path, *settings, "snapshots.store=none"), tmp_path / "run")
    run = open_run(tmp_path / "run")
    learned = [g for g in run if g.plan.purpose is Purpose.TRAIN]
    assert {type(g.plan.start) for g in learned} == {Recorded}
    assert run.ledger.total(Quantity.ENVIRONMENT_STEPS, purpose=Purpose.TRAIN) == 0
    assert run.ledger.total(Quantity.OPENS, purpose=Purpose.TRAIN) == 0


def test_a_policy_to_go_on_from_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy.start: there is no saved policy in .*nowhere"):
        check_ready(recipe(tmp_path, f'policy.start="{tmp_path}/nowhere"'))


async def test_a_task_without_an_expert_is_learned_from_the_policys_own_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    await trained(recipe(tmp_path, "reinforcement.updates=0", "imitation.updates=60"), base)
    settings = ("imitation.updates=0", f'policy.start="{base}/checkpoints/imitate"', "tracks.own_tries=8")
    monkeypatch.setattr(ScriptedEnvironment, "has_expert", lambda *_: False)
    await trained(recipe(tmp_path, *settings), tmp_path / "run")
    run = open_run(tmp_path / "run")
    tried = [g for g in run if g.plan.group_id.startswith("own/")]
    shown = [g for g in run if g.plan.purpose is Purpose.DEMONSTRATE]
    solved = [g for g in tried if any(m.outcome is Outcome.SUCCESS for m in g.members)]
    assert {g.plan.task.index for g in tried} == {2, 3, 4}
    assert {g.plan.task for g in shown} == {g.plan.task for g in solved} != set()
    for own in solved:
        way = next(g.members[0].trajectory.turns for g in shown if g.plan.task == own.plan.task)
        best = min(len(m.trajectory.turns) for m in own.members if m.outcome is Outcome.SUCCESS)
        assert len(way) == best
    assert any(isinstance(g.plan.start, FromSnapshot | Recorded) for g in run if g.plan.purpose is Purpose.TRAIN)


async def test_answers_may_be_tried_and_what_that_takes_is_counted(tmp_path: Path) -> None:
    await trained(recipe(tmp_path, "adaptive.lenient=true"), tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert any(isinstance(g.plan.start, Recorded) for g in run if g.plan.purpose is Purpose.TRAIN)
    assert run.ledger.total(Quantity.TRIED_STEPS) > 0
    with pytest.raises(ConfigError, match=r"adaptive.lenient needs snapshots.store"):
        recipe(tmp_path, "adaptive.lenient=true", "reinforcement.scheduler=pivots", "snapshots.store=none")
