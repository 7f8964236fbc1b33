"""Mistakes made from a snapshot and undone again, in sessions of their own."""

import math

import pytest

from cairn.codecs.text import TextCodec
from cairn.data.action import Action, Click, Finish, Type
from cairn.data.checkpoint import Checkpoint
from cairn.data.history import Deed
from cairn.data.ids import ElementId
from cairn.data.task import Root, Split, Task, Template
from cairn.errors import SessionError
from cairn.rollout.recovery import Mistake, Rejection, Rescuer, Scenario, save_way
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted import CHOOSE, COUNT, ENTER, ScriptedEnvironment
from letter_tokenizer import LetterTokenizer

PLUS, MINUS = Click(ElementId(1)), Click(ElementId(2))
CODEC = TextCodec(tokenizer=LetterTokenizer())


def task_of(template: Template, seed: int = 2) -> Task:
    """Of `count`, seed 2 counts to 3; of `enter`, seed 2 enters blue."""
    return Task(template=template, split=Split.TRAIN, index=seed)


async def way_of(environment: ScriptedEnvironment, task: Task) -> tuple[Deed, ...]:
    session = await environment.open(task, start=Root())
    deeds: list[Deed] = []
    while True:
        seen = await session.observe()
        action = await session.expert_action()
        assert action is not None
        deeds.append(Deed(observation=seen, action=action))
        if (await session.act(action)).done:
            await session.close()
            return tuple(deeds)


async def mistake_at(environment: ScriptedEnvironment, task: Task, step: int, wrong: Action) -> Mistake:
    way = await way_of(environment, task)
    kept = await save_way(environment, task, way=way, wanted={step})
    checkpoint = Checkpoint(
        task=task,
        goal="",
        history=way[:step],
        observation=way[step].observation,
        expert=way[step].action,
        snapshot=kept[step],
    )
    return Mistake(checkpoint=checkpoint, wrong=wrong, rest=[deed.action for deed in way[step:]])


async def tried(task: Task, step: int, wrong: Action, *, most: int = 8) -> Scenario | Rejection:
    environment = ScriptedEnvironment()
    mistake = await mistake_at(environment, task, step, wrong)
    found = await Rescuer(sessions=environment, codec=CODEC, most=most).scenario(mistake)
    assert environment.live == 0
    return found


async def test_counting_down_is_undone_by_counting_up_and_the_page_is_the_one_from_before() -> None:
    found = await tried(task_of(COUNT), 1, MINUS)
    assert isinstance(found, Scenario)
    assert [deed.action for deed in found.escape] == [PLUS]
    assert found.escape[0].observation.elements[2].label == "0"
    assert found.back.digest == found.mistake.checkpoint.observation.digest


async def test_a_text_that_was_wrong_is_taken_back() -> None:
    found = await tried(task_of(ENTER), 0, Type("red", ElementId(1)))
    assert isinstance(found, Scenario)
    assert [deed.action for deed in found.escape] == [Type("", ElementId(1))]


async def test_what_ends_the_episode_cannot_be_undone() -> None:
    assert await tried(task_of(CHOOSE), 0, Click(ElementId(4))) is Rejection.ENDED
    assert await tried(task_of(COUNT), 0, Finish()) is Rejection.ENDED


async def test_what_changes_nothing_needs_no_undoing() -> None:
    assert await tried(task_of(COUNT), 0, Click(ElementId(3))) is Rejection.UNCHANGED


async def test_what_brings_the_task_on_was_no_mistake() -> None:
    assert await tried(task_of(COUNT), 0, PLUS) is Rejection.PROGRESS


async def test_where_no_tried_way_leads_back_there_is_no_scenario() -> None:
    assert await tried(task_of(COUNT), 1, MINUS, most=1) is Rejection.NO_ESCAPE  # down once more is tried first


async def test_what_the_codec_cannot_say_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CODEC, "answers", lambda goal, action, seen: ())
    assert await tried(task_of(COUNT), 1, MINUS) is Rejection.NO_ESCAPE


async def test_a_page_that_is_back_but_whose_way_no_longer_succeeds_is_rejected() -> None:
    environment = ScriptedEnvironment()
    mistake = await mistake_at(environment, task_of(COUNT), 1, MINUS)
    broken = Mistake(checkpoint=mistake.checkpoint, wrong=MINUS, rest=[MINUS])
    assert await Rescuer(sessions=environment, codec=CODEC).scenario(broken) is Rejection.WAY_LOST


@pytest.mark.parametrize("call", [Call.OPEN, Call.OBSERVE, Call.ACT, Call.EVIDENCE])
async def test_what_fails_outside_is_counted_and_every_session_is_closed(call: Call) -> None:
    environment = ScriptedEnvironment()
    mistake = await mistake_at(environment, task_of(COUNT), 1, MINUS)
    environment.faults = (Fault(call=call, delay=math.inf),)
    assert await Rescuer(sessions=environment, codec=CODEC).scenario(mistake) is Rejection.FAILED
    assert environment.live == 0


async def test_a_way_that_shows_other_pages_now_is_not_saved() -> None:
    environment = ScriptedEnvironment()
    way = await way_of(environment, task_of(COUNT))
    with pytest.raises(SessionError, match="at step 1 the page is not the recorded one"):
        await save_way(environment, task_of(COUNT), way=(way[0], way[0], way[2]), wanted={2})
    assert environment.live == 0
