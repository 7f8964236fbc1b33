"""What is told at a recorded state, where its expert aims, and which states are of the quality to learn at."""

from dataclasses import replace

import pytest

from cairn.data.action import Click, Invalid, Key, Point, Type
from cairn.data.ids import ElementId
from cairn.data.observation import Box, Element, Observation
from cairn.data.recorded import Instruction, sound, target_box, told
from cairn.data.task import Recorded

BOX = Box(left=0.1, top=0.2, width=0.3, height=0.1)
BUTTON = Element(id=ElementId(1), role="button", label="go", value="", states=(), interactive=True, box=BOX)
SEEN = Observation(image=None, elements=(BUTTON,), accessibility="", url="", digest="")
START = Recorded(goal="book a flight", observation=SEEN, expert=Click(ElementId(1)), sub_goal="press go")


def test_the_policy_is_told_the_goal_the_steps_own_or_both() -> None:
    assert told(START, Instruction.GOAL) == START
    assert told(START, Instruction.SUB_GOAL).goal == "press go"
    assert told(START, Instruction.BOTH).goal == "book a flight\nThis step: press go"


def test_without_a_goal_of_the_step_the_whole_one_is_told() -> None:
    plain = replace(START, sub_goal="")
    assert [told(plain, instruction) for instruction in Instruction] == [plain] * 3


def test_the_goal_of_a_part_does_not_drown_what_is_told() -> None:
    part = replace(START, observation=replace(SEEN, goal="choose a seat"))
    for instruction, wanted in (
        (Instruction.SUB_GOAL, "press go"),
        (Instruction.BOTH, "choose a seat\nThis step: press go"),
    ):
        start = told(part, instruction)
        assert start.observation.instruction(start.goal) == wanted


def test_a_target_is_the_recorded_box_or_that_of_the_element() -> None:
    other = Box(left=0.5, top=0.5, width=0.1, height=0.1)
    assert target_box(START) == BOX
    assert target_box(replace(START, target=other)) == other
    assert target_box(replace(START, expert=Click(Point(0.2, 0.25)))) is None
    assert target_box(replace(START, expert=Click(ElementId(9)))) is None
    assert target_box(replace(START, expert=Key("Enter"))) is None


@pytest.mark.parametrize("start", [START, replace(START, expert=Type("ada")), replace(START, expert=Key("Enter"))])
def test_a_goal_and_a_box_to_click_in_are_quality(start: Recorded) -> None:
    assert sound(start)


@pytest.mark.parametrize(
    "start",
    [
        replace(START, goal=" "),
        replace(START, expert=Click(Point(0.2, 0.25))),
        replace(START, target=Box(left=0.0, top=0.0, width=1.0, height=0.6)),
        replace(START, target=Box(left=0.0, top=0.0, width=0.0, height=0.6)),
        replace(START, expert=Invalid("", "")),
    ],
)
def test_without_a_goal_or_a_box_that_tells_places_apart_a_state_is_left_out(start: Recorded) -> None:
    assert not sound(start)
