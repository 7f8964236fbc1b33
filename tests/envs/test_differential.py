"""The pages judge the same actions the same way in miniwob's own environment and in ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.bench.competitors import bench_python
from cairn.bench.differential import DIFFERENTIAL_TASKS, compare
from cairn.bench.traces import Trace, placed, spoiled, wire
from cairn.data.action import Answer, Click, Drag, Key, Point, Scroll, Type, Wait
from cairn.data.ids import ElementId, TemplateId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import Split, Task, Template
from cairn.envs.miniwob.environment import MiniwobEnvironment
from cairn.envs.miniwob.experts.tasks import EXPERT_TASKS
from cairn.errors import ConfigError, SetupError

_BUTTON = Element(
    id=ElementId(1),
    role="button",
    label="ok",
    value="",
    states=(),
    interactive=True,
    box=Box(left=0.25, top=0.5, width=0.5, height=0.1),
)
_SEEN = Observation(image=None, elements=(_BUTTON,), accessibility="", url="", digest="")


def test_placed_actions_aim_at_the_middle_of_the_element() -> None:
    middle = Point(80 / 160, 115 / 210)  # 115.5 is no whole pixel
    assert placed(Click(ElementId(1)), _SEEN) == Click(middle)
    assert placed(Type("a b", ElementId(1)), _SEEN) == Type("a b", middle)
    assert placed(Drag(ElementId(1), Point(0.1, 0.2)), _SEEN) == Drag(middle, Point(16 / 160, 42 / 210))
    assert placed(Key("Enter"), _SEEN) == Key("Enter")


@given(x=st.integers(0, 159), y=st.integers(0, 209))
def test_placing_leaves_whole_pixels_where_they_are(x: int, y: int) -> None:
    on_pixel = placed(Click(Point(x / 160, y / 210)), _SEEN)
    assert wire(on_pixel) == {"kind": "click", "x": x, "y": y}
    assert placed(on_pixel, _SEEN) == on_pixel


def test_placing_an_action_on_an_element_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="7"):
        placed(Click(ElementId(7)), _SEEN)


def test_wire_speaks_in_pixels_of_the_screen() -> None:
    assert wire(Click(Point(0.5, 0.5))) == {"kind": "click", "x": 80, "y": 105}
    assert wire(Scroll(Point(0.5, 0.5), 0.0, 1.0)) == {"kind": "scroll", "x": 80, "y": 105, "dy": 210}
    assert wire(Key("Control+a")) == {"kind": "key", "keys": "Control+a"}
    assert wire(Wait(0.5)) == {"kind": "wait", "seconds": 0.5}


@pytest.mark.parametrize("action", [Click(ElementId(1)), Answer("no"), Type("a")])
def test_what_cannot_be_played_elsewhere_is_refused(action: Click | Answer | Type) -> None:
    with pytest.raises(ConfigError):
        wire(action)


def test_spoiling_replaces_exactly_one_action_by_another() -> None:
    template = Template(id=TemplateId("miniwob/click-test"), max_turns=5)
    actions = (Click(Point(0.2, 0.5)), Type("x", Point(0.3, 0.6)), Click(Point(0.4, 0.7)))
    for index in range(3):
        trace = Trace(
            task=Task(template=template, split=Split.TRAIN, index=index),
            goal="",
            actions=actions,
            done=True,
            reward=1.0,
        )
        changed = [a != b for a, b in zip(actions, spoiled(trace).actions, strict=True)]
        assert changed == [place == index for place in range(3)]


def test_the_differential_test_covers_at_least_forty_tasks_that_have_an_expert() -> None:
    assert len(set(DIFFERENTIAL_TASKS)) >= 40
    assert set(DIFFERENTIAL_TASKS) <= EXPERT_TASKS


@pytest.mark.browser
@pytest.mark.slow
async def test_the_same_actions_have_the_same_success_in_both_environments() -> None:
    try:
        bench_python()
    except SetupError as missing:
        pytest.skip(str(missing))
    environment = MiniwobEnvironment(blobs=None)
    try:
        result = await compare(environment, tasks=("click-checkboxes", "login-user"), seeds=2)
    finally:
        await environment.close()
    assert len(result.comparisons) == 8
    assert result.disagreements == ()
    assert all(c.ours.success for c in result.comparisons if not c.spoiled)
    assert not all(c.ours.success for c in result.comparisons if c.spoiled)
