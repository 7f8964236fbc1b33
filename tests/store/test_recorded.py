"""Sets of recorded states on disk: written once, read lazily, divided by task, and damage is noticed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cairn.data.ids import TaskId
from cairn.data.recorded import RecordedState, recorded_task
from cairn.data.task import Recorded, Split
from cairn.errors import ConfigError, StoreError
from cairn.store.recorded import Division, RecordedSet, RecordedWriter, verify
from cairn.store.recorded_rows import dump_way, load_way
from schedule.tracks import EXPERT, SEEN
from store.strategies import plans

starts = plans.map(lambda plan: plan.start).filter(lambda start: isinstance(start, Recorded))


def state(task: int, step: int, *, template: str = "t", start: Recorded | None = None) -> RecordedState:
    return RecordedState(
        task=recorded_task(template, task),
        episode=f"way {task}",
        step=step,
        source="made up",
        start=start or Recorded(goal=f"{template} {task} {step}", observation=SEEN, expert=EXPERT),
    )


def written(folder: Path, states: list[RecordedState], *, held_out: float = 0.3, seed: int = 0) -> RecordedSet:
    writer = RecordedWriter(folder, origin="a test")
    for one in states:
        writer.add(one)
    writer.finish(Division(held_out=held_out, seed=seed))
    return RecordedSet(folder)


def unsplit(one: RecordedState) -> RecordedState:
    return replace(one, task=replace(one.task, split=Split.TRAIN))


@settings(max_examples=25)
@given(st.lists(starts, min_size=1, max_size=3))
def test_states_of_a_way_survive_their_line(found: list[Recorded]) -> None:
    way = [state(0, step, start=start) for step, start in enumerate(found)]
    assert list(load_way(dump_way(way), split=Split.TRAIN)) == way


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 4), starts), min_size=1, max_size=6), st.floats(0, 1), st.integers(0, 5))
def test_a_set_holds_what_was_added_and_keeps_each_task_on_one_side(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[int, Recorded]], share: float, seed: int
) -> None:
    added = [state(task, step, start=start) for step, (task, start) in enumerate(found)]
    read = written(tmp_path_factory.mktemp("sets") / "set", added, held_out=share, seed=seed)
    assert [unsplit(one) for one in read.everything()] == added
    sides = [{one.task.index for one in read.of(split)} for split in Split]
    assert not sides[0] & sides[1]
    assert sum(len(read.of(split)) for split in Split) == len(added)
    for split in Split:
        assert all(one.task.split is split for one in read.of(split))


@given(st.integers(1, 40), st.floats(0, 1), st.integers(0, 9))
@example(3, 0.99, 0)  # one task of each template is left to learn from
@example(3, 0.01, 0)  # and one is held out
def test_the_division_holds_out_its_share_of_every_template(count: int, share: float, seed: int) -> None:
    tasks = [recorded_task(template, n) for template in ("a", "b") for n in range(count)]
    held_out = Division(held_out=share, seed=seed).divide(tasks)
    assert held_out == Division(held_out=share, seed=seed).divide(reversed(tasks))
    for template in ("a", "b"):
        own = [task for task in tasks if task.template.id.endswith(template) and task.id in held_out]
        expected = round(share * count)
        if 0 < share < 1 and count > 1:
            expected = min(max(expected, 1), count - 1)
        assert len(own) == expected


def test_other_seeds_hold_out_other_tasks() -> None:
    tasks = [recorded_task("a", n) for n in range(40)]
    assert len({Division(held_out=0.5, seed=seed).divide(tasks) for seed in range(5)}) == 5


def test_pages_on_a_way_are_written_once() -> None:
    page = replace(SEEN, url="a page of its own")
    long = [state(0, step, start=Recorded(goal="go", observation=page, expert=EXPERT)) for step in range(20)]
    assert dump_way(long).count("a page of its own") == 1


def test_states_can_be_chosen_by_template_and_are_read_when_asked_for(tmp_path: Path) -> None:
    read = written(tmp_path / "set", [state(n, 0, template=t) for t in ("a", "b") for n in range(4)], held_out=0.25)
    train = read.of(Split.TRAIN, templates=["recorded/b"])
    assert {one.task.template.id for one in train} == {"recorded/b"}
    assert len(train) == 3
    assert list(train[1:]) == [train[1], train[2]]
    assert train.chosen([2, 0])[0] == train[2]
    (tmp_path / "set" / "states.jsonl").unlink()
    with pytest.raises(StoreError, match=r"states\.jsonl cannot be read"):
        RecordedSet(tmp_path / "set").everything()[0]


def test_what_is_held_out_can_be_taken_over(tmp_path: Path) -> None:
    writer = RecordedWriter(tmp_path / "set", origin="a test")
    for n in range(3):
        writer.add(replace(state(n, 0), task=replace(state(n, 0).task, split=Split.HELD_OUT)))
    writer.finish(Division(), held_out={TaskId("recorded/t#1")})
    assert [one.task.index for one in RecordedSet(tmp_path / "set").of(Split.HELD_OUT)] == [1]


def test_a_set_is_written_once_and_an_unfinished_one_is_none(tmp_path: Path) -> None:
    writer = RecordedWriter(tmp_path / "set", origin="a test")
    writer.add(state(0, 0))
    writer.abandon()
    with pytest.raises(ConfigError, match=r"set\.json is missing"):
        RecordedSet(tmp_path / "set")
    assert len(written(tmp_path / "set", [state(0, 0), state(1, 0)])) == 2
    with pytest.raises(ConfigError, match="holds recorded states already"):
        RecordedWriter(tmp_path / "set", origin="a test")


def test_nothing_is_left_of_a_set_that_was_not_finished_but_what_was_there_before(tmp_path: Path) -> None:
    for folder in (tmp_path / "new", tmp_path / "old"):
        if folder.name == "old":
            (folder / "blobs").mkdir(parents=True)
            (folder / "notes.txt").touch()
        writer = RecordedWriter(folder, origin="a test")
        writer.blobs.put(b"picture")
        writer.add(state(0, 0))
        writer.abandon()
        writer.abandon()
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == ["blobs", "notes.txt"]


def test_two_states_of_one_name_are_refused(tmp_path: Path) -> None:
    writer = RecordedWriter(tmp_path / "set", origin="a test")
    writer.add(state(0, 0))
    with pytest.raises(ConfigError, match="two states of recorded/t are called way 0@0"):
        writer.add(state(0, 0))
    writer.abandon()


def test_a_set_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a test gave no state"):
        RecordedWriter(tmp_path / "set", origin="a test").finish(Division())


@pytest.mark.parametrize("name", ["states.jsonl", "index.parquet", "set.json"])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_damage_is_noticed_wherever_it_is(tmp_path: Path, name: str, at: float) -> None:
    whole = tmp_path / "whole"
    written(whole, [state(n, 0) for n in range(5)])
    assert verify(whole).states == 5
    hurt = shutil.copytree(whole, tmp_path / "hurt")
    data = bytearray((hurt / name).read_bytes())
    data[int(at * len(data))] ^= 0x10
    (hurt / name).write_bytes(data)
    with pytest.raises((StoreError, ConfigError)):
        verify(hurt)


def test_a_state_that_was_changed_and_still_reads_well_is_damage(tmp_path: Path) -> None:
    states = written(tmp_path / "set", [state(n, 0) for n in range(3)], held_out=0)
    path = tmp_path / "set" / "states.jsonl"
    path.write_bytes(path.read_bytes().replace(b"t 1 0", b"t 1 9"))
    with pytest.raises(StoreError, match="not the one that was written"):
        list(states.of(Split.TRAIN))


def test_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    written(tmp_path / "set", [state(0, 0)])
    path = tmp_path / "set" / "set.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))
    with pytest.raises(StoreError, match=r"set\.json has schema 9"):
        RecordedSet(tmp_path / "set")


@pytest.mark.parametrize("options", [{"held_out": -0.1}, {"held_out": 1.1}, {"seed": -1}])
def test_a_division_that_cannot_be_is_refused(options) -> None:
    with pytest.raises(ConfigError):
        Division(**options)
