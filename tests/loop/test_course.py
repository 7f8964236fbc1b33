"""The course of a run: phases in order, budgets, the control, interruptions."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cairn.data.sample import Batch
from cairn.data.task import Purpose, Split
from cairn.data.trajectory import Outcome, Prompt, ScoredGroup
from cairn.loop import progress
from cairn.loop.budget import Budget
from cairn.loop.course import Measuring
from cairn.loop.progress import Phase, Progress
from cairn.loop.summary import summarise
from cairn.testing.same import same_groups
from cairn.testing.scripted_policy import Answers, uniform
from loop.journey import Journey, minutes, options, updates

MEASURED = Measuring(held_out=3, train=1, tries=2, curve=0, curve_seconds=60.0)


async def test_the_phases_come_in_order_and_the_run_ends(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(control=True))
    done = await journey.course.run()
    phases = [str(e.fields["name"]) for e in journey.events.events if e.kind == "phase"]
    assert phases == ["demonstrate", "imitate", "reinforce", "control"]
    assert done.phase is Phase.DONE
    assert progress.read(journey.course.progress_file) == done
    assert journey.environment.live == 0


async def test_every_phase_leaves_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    await Journey(folder=tmp_path, options=options(control=True)).course.run()
    saved = {p.name: p.joinpath("version").read_text() for p in (tmp_path / "checkpoints").iterdir()}
    assert saved["imitate"] == "2"
    assert saved["reinforce"] == "4"
    assert int(saved["control"]) > 2


async def test_a_phase_ends_after_its_updates(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(imitation=updates(3), reinforcement=updates(1)))
    await journey.course.run()
    assert journey.learner.log == ["imitate"] * 3 + ["improve"]


async def test_a_phase_ends_when_its_minutes_of_learning_are_over(tmp_path: Path) -> None:
    """Ten seconds an update: six updates fill a minute, and evaluation takes nothing of it."""
    journey = Journey(
        folder=tmp_path,
        options=options(imitation=minutes(1.0), reinforcement=minutes(0.5), measuring=MEASURED),
    )
    done = await journey.course.run()
    assert journey.learner.log.count("imitate") == 6
    assert journey.learner.log.count("improve") == 3
    assert done.phase_seconds[Phase.IMITATE] == 60.0
    assert summarise(done).learning_minutes == 1.5


async def test_whichever_limit_comes_first_ends_a_phase(tmp_path: Path) -> None:
    journey = Journey(
        folder=tmp_path,
        options=options(imitation=Budget(updates=2, minutes=5.0), reinforcement=Budget(updates=50, minutes=0.5)),
    )
    await journey.course.run()
    assert (journey.learner.log.count("imitate"), journey.learner.log.count("improve")) == (2, 3)


async def test_a_phase_without_a_budget_is_skipped(tmp_path: Path) -> None:
    nothing = Budget(updates=None, minutes=None)
    journey = Journey(folder=tmp_path, options=options(imitation=nothing, reinforcement=nothing))
    done = await journey.course.run()
    assert (done.phase, journey.learner.log) == (Phase.DONE, [])


async def test_the_control_sets_out_from_the_end_of_imitation_for_as_long_as_reinforcement_took(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(imitation=updates(2), reinforcement=updates(5), control=True))
    done = await journey.course.run()
    assert journey.learner.log == ["imitate"] * 2 + ["improve"] * 5 + ["load imitate"] + ["imitate"] * 5
    assert done.phase_seconds[Phase.CONTROL] == done.phase_seconds[Phase.REINFORCE]
    assert (tmp_path / "checkpoints" / "control" / "version").read_text() == "7"  # 2 of imitation, and 5 more


async def test_a_run_that_ended_is_given_its_control_when_it_is_asked_for_later(tmp_path: Path) -> None:
    wanted = options(imitation=updates(2), reinforcement=updates(3), measuring=MEASURED, control=True)
    await Journey(folder=tmp_path, options=replace(wanted, control=False)).course.run()
    later = Journey(folder=tmp_path, options=wanted)
    later.course.resume()
    await later.course.run()
    at_once = Journey(folder=tmp_path / "at-once", options=wanted)
    assert essence(progress.read(tmp_path / "progress.json")) == essence(await at_once.course.run())
    again = Journey(folder=tmp_path, options=wanted)
    again.course.resume()
    await again.course.run()
    assert again.learner.log == ["load control"]


async def test_the_control_goes_on_in_the_lessons_where_imitation_stopped(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(imitation=updates(2), reinforcement=updates(3), control=True))
    await journey.course.run()
    curriculum = await journey.curriculum().curriculum()
    imitated = [journey.learner.batches[i] for i in (0, 1, 5, 6, 7)]
    for number, batch in enumerate(imitated):
        expected = [s.sample.token_ids.tolist() for s in curriculum.batch(number).samples]
        assert [s.sample.token_ids.tolist() for s in batch.samples] == expected


async def test_the_engine_serves_the_newest_policy_in_every_round_and_evaluation(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(control=True, measuring=MEASURED))
    await journey.course.run()
    trained = [g for g in journey.groups if g.plan.purpose is Purpose.TRAIN]
    versions = [int(g.members[0].trajectory.turns[0].completion.versions[0]) for g in trained]
    assert versions == [2, 2, 3, 3]
    evaluated = [g for g in journey.groups if g.plan.purpose is Purpose.EVALUATE]
    ends = sorted({int(g.members[0].trajectory.turns[0].completion.versions[0]) for g in evaluated})
    assert ends == [2, 4]  # imitation; reinforcement, and the control, which made as many updates


async def test_of_what_was_saved_on_the_way_nothing_is_left_in_the_end(tmp_path: Path) -> None:
    wanted = replace(options(imitation=updates(5), reinforcement=updates(4), control=True), save_every=1)
    stopped = Journey(folder=tmp_path, options=wanted, answers=interrupting(3))
    await interrupted(stopped)
    now = progress.read(tmp_path / "progress.json").checkpoint
    assert now in {path.name for path in (tmp_path / "checkpoints").iterdir()}
    later = Journey(folder=tmp_path, options=wanted, store=stopped.store)
    later.course.resume()
    await later.course.run()
    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {"demonstrate", "imitate", "reinforce", "control"}


async def test_a_phase_that_learns_nothing_is_not_measured_again(tmp_path: Path) -> None:
    once = Journey(folder=tmp_path, options=options(imitation=updates(2), reinforcement=updates(0), measuring=MEASURED))
    done = await once.course.run()
    evaluated = [g for g in once.groups if g.plan.purpose is Purpose.EVALUATE]
    for greedy in (False, True):
        before, after = (done.final(phase, greedy=greedy) for phase in (Phase.IMITATE, Phase.REINFORCE))
        assert before is not None
        assert after == replace(before, phase=Phase.REINFORCE)
    twice = Journey(folder=tmp_path / "on", options=options(imitation=updates(2), measuring=MEASURED))
    await twice.course.run()
    again = [g for g in twice.groups if g.plan.purpose is Purpose.EVALUATE]
    assert len(again) == 2 * len(evaluated)


async def test_no_evaluated_task_was_ever_trained_on_or_demonstrated(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(measuring=MEASURED, control=True))
    await journey.course.run()
    by_purpose = {
        purpose: {g.plan.task.id for g in journey.groups if g.plan.purpose is purpose and _held_out(purpose, g)}
        for purpose in (Purpose.TRAIN, Purpose.DEMONSTRATE, Purpose.EVALUATE)
    }
    assert all(by_purpose.values())
    assert not by_purpose[Purpose.EVALUATE] & by_purpose[Purpose.TRAIN]
    assert not by_purpose[Purpose.EVALUATE] & by_purpose[Purpose.DEMONSTRATE]
    assert not by_purpose[Purpose.TRAIN] & by_purpose[Purpose.DEMONSTRATE]
    seeds = {g.plan.task.seed for g in journey.groups if g.plan.task.split is Split.HELD_OUT}
    assert min(seeds) >= 1_000_000


def _held_out(purpose: Purpose, group: ScoredGroup) -> bool:
    return purpose is not Purpose.EVALUATE or group.plan.task.split is Split.HELD_OUT


async def test_what_is_measured_is_in_the_summary(tmp_path: Path) -> None:
    done = await Journey(folder=tmp_path, options=options(measuring=MEASURED, control=True)).course.run()
    summary = summarise(done)
    assert None not in (summary.heldout_bc, summary.heldout_rl, summary.heldout_control, summary.greedy_gain)
    assert summary.episodes == 6  # greedy: 3 tasks of 2 templates, once
    kinds = {(m.phase, m.split, m.greedy) for m in done.measured}
    assert len(kinds) == len(done.measured) == 3 * 2 * 2


async def test_points_between_the_ends_are_sampled_alone(tmp_path: Path) -> None:
    between = Measuring(held_out=1, train=0, tries=1, curve=1, curve_seconds=20.0)
    done = await Journey(
        folder=tmp_path, options=options(imitation=updates(7), reinforcement=updates(0), measuring=between)
    ).course.run()
    points = [m for m in done.measured if not m.final and m.phase is Phase.IMITATE]
    assert [m.minutes * 60 for m in points] == [20.0, 40.0, 60.0]
    assert not any(m.greedy for m in points)


# ── interruptions ─────────────────────────────────────────────────────────────


def interrupting(call: int) -> Answers:
    """Answers as `uniform` does; call number `call` cancels whoever runs the course."""
    calls = 0
    inner = uniform(1, 2, 3, 4)

    def answer(prompt: Prompt, seed: int) -> Sequence[int]:
        nonlocal calls
        calls += 1
        if calls == call:
            running = next(t for t in asyncio.all_tasks() if t.get_name() == "course")
            running.cancel()
        return inner(prompt, seed)

    return answer


async def interrupted(journey: Journey) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(journey.course.run(), name="course")
    assert journey.environment.live == 0


def whole(folder: Path) -> Journey:
    return Journey(folder=folder, answers=uniform(1, 2, 3, 4), options=options(control=True, measuring=MEASURED))


def essence(done: Progress) -> Progress:
    """All of it but where the learner was saved last."""
    return replace(done, checkpoint=None)


async def test_an_interrupted_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """Wherever it is interrupted: in an evaluation, in the middle of a round, in the control's evaluation."""
    expected = whole(tmp_path / "whole")
    done = await expected.course.run()
    asked = len(expected.engine.prompts)
    phases: set[Phase] = set()
    for call in range(2, asked, asked // 6):
        first = replace(whole(tmp_path / str(call)), answers=interrupting(call))
        await interrupted(first)
        phases.add(progress.read(first.course.progress_file).phase)
        second = replace(whole(tmp_path / str(call)), store=first.store)
        second.course.resume()
        assert essence(await second.course.run()) == essence(done)
        assert second.learner.version == expected.learner.version
        learned = [*first.learner.batches, *second.learner.batches]
        assert [_ids(b) for b in learned] == [_ids(b) for b in expected.learner.batches]
    assert phases == {Phase.IMITATE, Phase.REINFORCE, Phase.CONTROL}


def _ids(batch: Batch) -> list[list[int]]:
    return [s.sample.token_ids.tolist() for s in batch.samples]


async def test_an_update_under_way_is_finished_and_counted_before_the_run_stops(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(imitation=updates(3)))
    learner = journey.learner
    task = asyncio.create_task(journey.course.run())
    learner.before = lambda: _cancel(task)
    with pytest.raises(asyncio.CancelledError):
        await task
    saved = progress.read(journey.course.progress_file)
    assert saved.updates == int(learner.version) == len(learner.batches)


async def test_a_finished_phase_is_not_measured_twice(tmp_path: Path) -> None:
    first = replace(whole(tmp_path), answers=interrupting(13))  # in the evaluation after imitation
    await interrupted(first)
    saved = progress.read(first.course.progress_file)
    assert (saved.phase, saved.updates) == (Phase.IMITATE, 2)
    second = replace(whole(tmp_path), store=first.store)
    second.course.resume()
    done = await second.course.run()
    assert len({(m.phase, m.split, m.greedy) for m in done.measured}) == len(done.measured)


async def test_a_run_that_was_killed_before_its_first_save_begins_anew_with_what_it_stored(tmp_path: Path) -> None:
    first = Journey(folder=tmp_path)
    await first.curriculum().curriculum()
    second = Journey(folder=tmp_path, store=first.store)
    second.course.resume()
    assert (await second.course.run()).phase is Phase.DONE
    played = [g for g in second.groups if g.plan.purpose is Purpose.DEMONSTRATE]
    assert len(played) == 4


async def test_a_save_never_overwrites_the_checkpoint_that_the_progress_names(tmp_path: Path) -> None:
    """A process that dies between saving the learner and the progress leaves the two of the last save."""
    journey = Journey(folder=tmp_path, options=options(imitation=updates(5), save_every=1))
    seen: list[str | None] = []

    def named() -> str | None:
        file = journey.course.progress_file
        return progress.read(file).checkpoint if file.exists() else None

    journey.learner.saving = lambda path: seen.append(named() if named() == path.name else None)
    await journey.course.run()
    assert len(seen) > 6
    assert set(seen) == {None}


async def test_what_was_played_of_an_interrupted_round_is_stored_and_never_learned_from(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, answers=interrupting(3))
    await interrupted(journey)
    trained = [g for g in journey.groups if g.plan.purpose is Purpose.TRAIN]
    assert Outcome.CANCELLED in {lost.outcome for g in trained for lost in g.lost}
    assert "improve" not in journey.learner.log


async def test_two_runs_of_one_seed_are_equal(tmp_path: Path) -> None:
    one, other = whole(tmp_path / "one"), whole(tmp_path / "other")
    assert essence(await one.course.run()) == essence(await other.course.run())
    assert same_groups(
        sorted(one.groups, key=lambda g: g.plan.group_id), sorted(other.groups, key=lambda g: g.plan.group_id)
    )


def _cancel(task: asyncio.Task[Progress]) -> None:
    task.get_loop().call_soon_threadsafe(task.cancel)


async def test_reinforcement_rehearses_the_lessons_that_follow_after_each_update(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, options=options(imitation=updates(1), reinforcement=updates(2), rehearsal=2))
    await journey.course.run()
    assert journey.learner.log == ["imitate", "improve", "imitate", "imitate", "improve", "imitate", "imitate"]
    curriculum = await journey.curriculum().curriculum()
    rehearsed = [journey.learner.batches[i] for i in (2, 3, 5, 6)]
    for batch, lesson in zip(rehearsed, (curriculum.batch(n) for n in (1, 2, 3, 4)), strict=True):
        assert [s.sample.token_ids.tolist() for s in batch.samples] == [
            s.sample.token_ids.tolist() for s in lesson.samples
        ]
    assert journey.engine.version == journey.learner.version
