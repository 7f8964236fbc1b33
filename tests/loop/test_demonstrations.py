"""Demonstrations: every training task once, again where the outside failed, in one order whatever happened."""

from pathlib import Path

import pytest

from cairn.data.task import Purpose, Split
from cairn.data.trajectory import Outcome
from cairn.errors import CircuitOpenError, SessionError, SetupError
from cairn.loop.imitation import Curriculum
from cairn.rollout.breaker import CircuitBreaker
from cairn.testing.faults import Call, Fault
from cairn.testing.memory import MemoryStore
from cairn.testing.scripted import CHOOSE, COUNT
from loop.journey import Journey

GONE = ConnectionResetError("gone")


def lessons(curriculum: Curriculum) -> list[list[int]]:
    return [s.sample.token_ids.tolist() for u in range(20) for s in curriculum.batch(u).samples]


async def test_the_first_training_tasks_of_every_template_are_played_by_their_experts(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path)
    await journey.curriculum().curriculum()
    assert {(g.plan.task.template.id, g.plan.task.split, g.plan.task.index) for g in journey.groups} == {
        (template.id, Split.TRAIN, index) for template in (CHOOSE, COUNT) for index in range(2)
    }
    assert {g.plan.purpose for g in journey.groups} == {Purpose.DEMONSTRATE}
    assert {m.outcome for g in journey.groups for m in g.members} == {Outcome.SUCCESS}
    assert journey.environment.live == 0


async def test_what_is_stored_is_not_played_again(tmp_path: Path) -> None:
    first = Journey(folder=tmp_path)
    await first.curriculum().curriculum()
    second = Journey(folder=tmp_path, store=first.store)
    await second.curriculum().curriculum()
    assert second.environment.opened == []


async def test_the_lessons_are_in_one_order_however_the_demonstrations_came_in(tmp_path: Path) -> None:
    whole = await Journey(folder=tmp_path).curriculum().curriculum()
    slow = Journey(folder=tmp_path, faults=[Fault(call=Call.OPEN, session=0, delay=50.0)])
    assert lessons(await slow.curriculum().curriculum()) == lessons(whole)
    part = MemoryStore()
    for group in reversed(slow.groups[1:3]):
        part.append(group)
    assert lessons(await Journey(folder=tmp_path, store=part).curriculum().curriculum()) == lessons(whole)


async def test_a_demonstration_lost_outside_is_played_again_on_another_session(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, faults=[Fault(call=Call.ACT, session=0, error=GONE)])
    await journey.curriculum().curriculum()
    assert len(journey.environment.opened) == 5
    hit = next(g for g in journey.groups if g.lost)
    assert [(lost.outcome, lost.trajectory.attempt) for lost in hit.lost] == [(Outcome.INFRASTRUCTURE_ERROR, 0)]
    assert [(m.outcome, m.trajectory.attempt) for m in hit.members] == [(Outcome.SUCCESS, 1)]


async def test_one_that_stays_lost_is_reported_and_tried_again_by_the_next_run(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, faults=[Fault(call=Call.ACT, session=0, error=GONE)], retries=0)
    await journey.curriculum().curriculum()
    notices = [str(e.fields["text"]) for e in journey.events.events if e.kind == "notice"]
    assert any("failed 1 of 2" in text for text in notices)
    again = Journey(folder=tmp_path, store=journey.store)
    await again.curriculum().curriculum()
    assert len(again.environment.opened) == 1


async def test_where_every_demonstration_was_lost_the_cause_is_told(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"no demonstration could be played to its end.*gone"):
        await Journey(folder=tmp_path, faults=[Fault(call=Call.OPEN, error=GONE)]).curriculum().curriculum()


async def test_what_no_retry_can_help_is_raised_as_itself(tmp_path: Path) -> None:
    broken = Journey(folder=tmp_path, faults=[Fault(call=Call.OPEN, error=SetupError("no browser"))])
    with pytest.raises(SetupError, match="no browser"):
        await broken.curriculum().curriculum()


async def test_an_environment_that_is_broken_opens_the_circuit(tmp_path: Path) -> None:
    journey = Journey(folder=tmp_path, faults=[Fault(call=Call.OPEN, error=GONE)], demonstrations=8)
    object.__setattr__(journey.runner.groups, "breaker", CircuitBreaker(at_least=4))
    with pytest.raises(CircuitOpenError, match="gone"):
        await journey.curriculum().curriculum()
