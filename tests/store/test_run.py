import errno
import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import cairn
from cairn.data import ledger as ledgers
from cairn.data.ids import GroupId, SnapshotId
from cairn.data.ledger import ALL_TEMPLATES, Ledger, Quantity
from cairn.data.sample import NoGradient
from cairn.data.task import FromSnapshot, Purpose, Recorded, Root
from cairn.data.trajectory import Ending, LostTrajectory, Outcome, ScoredGroup, Seconds, Term
from cairn.errors import ConfigError, SetupError, StoreError
from cairn.ports import Event
from cairn.store.events import FanOut, JsonlSink, TensorBoardSink, read_events
from cairn.store.ledger import read_ledger, write_ledger
from cairn.store.lock import RunLock
from cairn.store.run import RunWriter
from cairn.store.unfinished import Unfinished
from cairn.testing.groups import played_group
from cairn.testing.memory import MemoryEvents
from cairn.testing.same import same_groups
from cairn.testing.scripted import CHOOSE, COUNT
from cairn.testing.store_contract import made_up
from rollout.stage import plan_for

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def begin(path: Path) -> RunWriter:
    return RunWriter.create(path, recipe="seed = 3\n", seed=3, now=lambda: NOON, sync=False)


def group_with_losses() -> ScoredGroup:
    """Two members of one turn each, one infrastructure error and one cancelled before its first turn."""
    group = played_group(plan_for(size=4), [1.0, 0.0])
    member = group.members[0].trajectory
    spent = Seconds(opening=1.0, environment=2.0, engine=4.0, closing=8.0)
    broken = replace(member, sibling=2, ending=Ending.INFRASTRUCTURE_ERROR, evidence=None, error="gone", seconds=spent)
    stopped = replace(member, sibling=3, ending=Ending.CANCELLED, evidence=None, turns=())
    return replace(
        group,
        lost=(
            LostTrajectory(trajectory=broken, outcome=Outcome.INFRASTRUCTURE_ERROR, reason="gone"),
            LostTrajectory(trajectory=stopped, outcome=Outcome.CANCELLED, reason="stop"),
        ),
    )


# ── the directory ─────────────────────────────────────────────────────────────


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    groups = [*made_up(3), group_with_losses()]
    with begin(tmp_path / "run") as writer:
        for group in groups:
            writer.record(group)
        writer.events.emit(Event(kind="update", fields={"loss": 0.5}))
        image = writer.blobs.put(b"pixels")
    run = cairn.open_run(tmp_path / "run")
    assert same_groups(run, groups)
    assert (run.recipe, run.info.seed, run.info.began) == ("seed = 3\n", 3, NOON)
    assert "numpy" in run.info.packages
    assert [logged.event.fields for logged in run.events()] == [{"loss": 0.5}]
    assert run.blobs.get(image) == b"pixels"
    assert run.ledger == ledgers.of_groups(groups)


def test_the_table_has_a_row_for_every_turn(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        writer.record(group_with_losses())
    table = cairn.open_run(str(tmp_path)).to_arrow()
    assert table.column("outcome").to_pylist() == ["success", "failure", "infrastructure_error"]
    assert table.column("reward").to_pylist() == [1.0, 0.0, None]
    assert table.column("template").to_pylist() == [COUNT.id] * 3
    frame = cairn.open_run(tmp_path).to_pandas()
    assert frame.groupby("outcome").size().to_dict() == {"success": 1, "failure": 1, "infrastructure_error": 1}
    assert frame.token_ids.iloc[0].tolist() == [1, 0]


def test_a_second_run_in_one_directory_is_refused(tmp_path: Path) -> None:
    begin(tmp_path).close()
    with pytest.raises(ConfigError, match="holds a run already"):
        begin(tmp_path)


def test_two_writers_of_one_run_are_refused(tmp_path: Path) -> None:
    with begin(tmp_path), pytest.raises(SetupError, match=f"in use by process {os.getpid()}"):
        RunWriter.resume(tmp_path)
    RunWriter.resume(tmp_path).close()


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    code = f"from cairn.store.lock import RunLock; from pathlib import Path; import os; \
        lock = RunLock(Path({str(tmp_path / 'lock')!r})); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    lock = RunLock(tmp_path / "lock")
    lock.close()
    lock.close()


@pytest.mark.parametrize("opened", [RunWriter.resume, cairn.open_run])
def test_a_directory_without_a_run_is_said_to_hold_none(tmp_path: Path, opened) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        opened(tmp_path)


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    begin(tmp_path).close()
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StoreError, match=r"run\.json is damaged"):
        cairn.open_run(tmp_path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SetupError, match="no permission to write"):
        begin(tmp_path / "run")


def test_a_file_in_the_way_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(SetupError, match="cannot write"):
        begin(tmp_path / "run")


def test_resuming_counts_again_what_was_stored_and_keeps_what_updates_counted(tmp_path: Path) -> None:
    groups = made_up(3)
    with begin(tmp_path) as writer:
        for group in groups:
            writer.record(group)
        writer.count(ledgers.of_learner(7.0))
        writer.trajectories.append(groups[0])  # stored, and then killed before it was counted
    with RunWriter.resume(tmp_path) as writer:
        assert writer.ledger == ledgers.of_groups([*groups, groups[0]]) + ledgers.of_learner(7.0)
        writer.record(groups[1])
    assert cairn.open_run(tmp_path).ledger.total(Quantity.GROUPS) == 5


def as_killed(path: Path) -> Path:
    """What kill -9 would leave of a run whose writer is open."""
    return Path(shutil.copytree(path, path.with_name("killed")))


def results(group: ScoredGroup):
    return [*group.members, *group.lost]


def named(group: ScoredGroup, name: str) -> ScoredGroup:
    """The same under another name."""
    plan = replace(group.plan, group_id=GroupId(name))
    return replace(
        group,
        plan=plan,
        members=tuple(replace(m, trajectory=replace(m.trajectory, plan=plan)) for m in group.members),
        lost=tuple(replace(m, trajectory=replace(m.trajectory, plan=plan)) for m in group.lost),
    )


def test_trajectories_of_groups_that_were_never_completed_are_recorded_on_resuming(tmp_path: Path) -> None:
    done, half, whole = (named(group_with_losses(), name) for name in ("done", "half", "whole"))
    with begin(tmp_path / "run") as writer:
        writer.note(results(done)[0])
        writer.note(results(half)[0])
        writer.note(results(half)[2])
        writer.record(done)
        killed = as_killed(writer.path)
    with RunWriter.resume(killed) as writer:
        left = replace(half, members=half.members[:1], lost=half.lost[:1])
        assert same_groups(writer.trajectories.read(), [done, left])
        assert writer.ledger == ledgers.of_groups([done, left])
        writer.record(whole)
    with RunWriter.resume(killed) as writer:
        assert same_groups(writer.trajectories.read(), [done, left, whole])


def test_a_run_that_is_closed_has_counted_what_was_played_of_groups_that_are_not_complete(tmp_path: Path) -> None:
    done, half = (named(group_with_losses(), name) for name in ("done", "half"))
    with begin(tmp_path) as writer:
        writer.note(results(half)[0])
        writer.record(done)
        writer.close()
    left = replace(half, members=half.members[:1], lost=())
    run = cairn.open_run(tmp_path)
    assert same_groups(run, [done, left])
    assert run.ledger == ledgers.of_groups([done, left])
    assert not (tmp_path / "unfinished").exists()


def test_nothing_is_kept_twice_once_every_group_is_complete(tmp_path: Path) -> None:
    one, other = (named(group_with_losses(), name) for name in ("one", "other"))
    with begin(tmp_path) as writer:
        for result in [*results(one), *results(other)]:
            writer.note(result)
        writer.record(other)
        assert (tmp_path / "unfinished").stat().st_size > 0
        writer.record(one)
        assert (tmp_path / "unfinished").stat().st_size == 0


def test_a_death_between_storing_a_group_and_saying_so_doubles_nothing(tmp_path: Path) -> None:
    group = group_with_losses()
    with begin(tmp_path / "run") as writer:
        for result in results(group):
            writer.note(result)
        writer.trajectories.append(group)
        killed = as_killed(writer.path)
    with RunWriter.resume(killed) as writer:
        assert same_groups(writer.trajectories.read(), [group])


def test_a_run_that_is_closed_when_that_could_not_be_said_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Unfinished, _group: GroupId) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    group = group_with_losses()
    with begin(tmp_path) as writer:
        for result in results(group):
            writer.note(result)
        monkeypatch.setattr(Unfinished, "complete", full)
        with pytest.raises(OSError, match="no space left"):
            writer.record(group)
    assert same_groups(cairn.open_run(tmp_path), [group])


def test_what_siblings_changed_of_a_reward_makes_it_no_other_trajectory(tmp_path: Path) -> None:
    alone = group_with_losses()
    first = alone.members[0]
    term = Term(name="length", weight=1.0, value=0.5)
    together = replace(alone, members=(replace(first, reward=0.5, terms=(term,)), *alone.members[1:]))
    with begin(tmp_path / "run") as writer:
        for result in results(alone):  # each was noted when it was over, before the others were
            writer.note(result)
        writer.trajectories.append(together)
        killed = as_killed(writer.path)
    with RunWriter.resume(killed) as writer:
        assert same_groups(writer.trajectories.read(), [together])


# ── events ────────────────────────────────────────────────────────────────────


def test_events_survive_a_line_that_was_never_finished(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number in range(2):
        sink = JsonlSink(path, now=lambda: NOON)
        sink.emit(Event(kind="update", fields={"number": number}))
        sink.close()
        with path.open("a") as file:
            file.write('{"time": "20')
    logged = list(read_events(path))
    assert [entry.event.fields["number"] for entry in logged] == [0, 1]
    assert {entry.time for entry in logged} == {NOON}


def test_numbers_that_json_does_not_know_are_written_as_text(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "e.jsonl")
    sink.emit(Event(kind="x", fields={"a": math.nan, "b": math.inf, "c": 1.5, "d": None}))
    sink.close()
    (line,) = (tmp_path / "e.jsonl").read_text().splitlines()
    assert json.loads(line)["fields"] == {"a": "nan", "b": "inf", "c": 1.5, "d": None}


def test_a_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "none")) == []


def test_a_fan_out_reaches_every_sink() -> None:
    sinks = [MemoryEvents(), MemoryEvents()]
    FanOut(sinks).emit(Event(kind="x", fields={}))
    assert [sink.kinds() for sink in sinks] == [["x"], ["x"]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_numbers_reach_tensorboard(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, now=lambda: NOON)
    sink.emit(Event(kind="update", fields={"phase": "imitate", "number": 3, "loss": 0.5, "note": "text"}))
    sink.emit(Event(kind="round", fields={"number": 4, "success": 0.25}))
    sink.emit(Event(kind="phase", fields={"name": "no step"}))
    sink.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert read.Tags()["tensors"] == ["imitate/loss", "round/success"]
    (point,) = read.Tensors("imitate/loss")
    assert (point.step, point.wall_time) == (3, NOON.timestamp())


# ── the ledger ────────────────────────────────────────────────────────────────


def test_the_ledger_counts_what_a_group_took_and_came_to() -> None:
    ledger = ledgers.of_groups([group_with_losses()])
    at = {quantity: ledger.total(quantity) for quantity in Quantity}
    assert {quantity: value for quantity, value in at.items() if value} == {
        Quantity.GROUPS: 1,
        Quantity.JUDGED: 2,
        Quantity.SUCCESS: 1,
        Quantity.FAILURE: 1,
        Quantity.INFRASTRUCTURE_ERROR: 1,
        Quantity.CANCELLED: 1,
        Quantity.OPENS: 4,
        Quantity.ENVIRONMENT_STEPS: 3,
        Quantity.PROMPT_TOKENS: 6,
        Quantity.RESPONSE_TOKENS: 6,
        Quantity.OPENING_SECONDS: 1.0,
        Quantity.ENVIRONMENT_SECONDS: 2.0,
        Quantity.ENGINE_SECONDS: 4.0,
        Quantity.CLOSING_SECONDS: 8.0,
    }


def test_the_ledger_is_kept_by_purpose_and_template() -> None:
    evaluated = played_group(replace(plan_for(CHOOSE), purpose=Purpose.EVALUATE), [1.0])
    ledger = ledgers.of_groups([group_with_losses(), evaluated])
    assert ledger.total(Quantity.SUCCESS) == 2
    assert ledger.total(Quantity.SUCCESS, purpose=Purpose.EVALUATE) == 1
    assert ledger.total(Quantity.SUCCESS, template=COUNT.id) == 1
    assert ledger.total(Quantity.SUCCESS, purpose=Purpose.TRAIN, template=CHOOSE.id) == 0


def test_a_recorded_state_opens_nothing_and_a_snapshot_is_a_restore() -> None:
    shown = played_group(plan_for(), [1.0]).members[0].trajectory.turns[0]
    recorded = Recorded(goal="", observation=shown.observation, expert=shown.action)
    starts = [Root(), FromSnapshot(id=SnapshotId("s")), recorded]
    ledger = ledgers.of_groups([played_group(plan_for(start=start), [1.0]) for start in starts])
    assert ledger.total(Quantity.OPENS) == 2
    assert ledger.total(Quantity.RESTORES) == 1
    assert ledger.total(Quantity.ENVIRONMENT_STEPS) == 2


def test_updates_are_counted_with_the_groups_that_taught_nothing_and_what_they_burned() -> None:
    used, idle = played_group(plan_for(), [1.0, 0.0]), played_group(plan_for(CHOOSE), [0.0, 0.0])
    ledger = ledgers.of_update(used=[used], idle=[(idle, NoGradient.ALL_FAILED)], sequences=9, samples=4)
    assert ledger.total(Quantity.GROUPS_IN_UPDATES, template=COUNT.id) == 1
    assert ledger.total(Quantity.ALL_FAILED, template=CHOOSE.id) == 1
    assert ledger.total(Quantity.STEPS_WITHOUT_GRADIENT) == 2
    assert ledger.total(Quantity.SAMPLES_IN_UPDATES, template=ALL_TEMPLATES) == 4
    assert ledger.total(Quantity.SEQUENCES_IN_UPDATES) == 9
    nothing = ledgers.of_update(used=[], idle=[(idle, NoGradient.ALL_FAILED)], sequences=0, samples=0)
    assert nothing.total(Quantity.UPDATES) == 0


def test_every_outcome_and_every_reason_has_its_quantity() -> None:
    for name in [outcome.name for outcome in Outcome] + [why.name for why in NoGradient]:
        assert Quantity[name].value == name.lower()


def test_ledgers_add_up() -> None:
    groups = [*made_up(4), group_with_losses()]
    apart = Ledger()
    for group in groups:
        apart = apart + ledgers.of_groups([group])
    assert apart == ledgers.of_groups(groups)
    assert Counter(apart.sums) == Counter((Ledger() + apart).sums)


def test_a_ledger_survives_its_file(tmp_path: Path) -> None:
    ledger = ledgers.of_groups([group_with_losses()]) + ledgers.of_learner(1.25)
    write_ledger(tmp_path / "ledger.json", ledger)
    assert read_ledger(tmp_path / "ledger.json") == ledger
    assert read_ledger(tmp_path / "none.json") == Ledger()


@pytest.mark.parametrize("text", ["{", "[3]", '[{"purpose": "?", "template": "", "quantities": {"opens": 1}}]', "[{}]"])
def test_a_damaged_ledger_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(StoreError, match=r"ledger\.json is damaged"):
        read_ledger(tmp_path / "ledger.json")
