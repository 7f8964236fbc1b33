"""Every action that text can say comes back as it was; everything else is refused with advice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.codecs.text_grammar import format_action, parse_action, shown_label
from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Home,
    Hover,
    Invalid,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Type,
    Wait,
)
from cairn.data.ids import ElementId
from shown_pages import element, page

LABELS = ["okay", "", 'a "b" [7] c', "to (1, 2) to [3]", "\n new\tline ", "click", "x" * 99]
SEEN = page(*(element(i, label) for i, label in enumerate(LABELS, 1)))

ids = st.integers(1, len(LABELS) + 2).map(ElementId)
points = st.builds(lambda x, y: Point(x / 1000, y / 1000), st.integers(0, 1000), st.integers(0, 1000))
spots = st.one_of(ids, points)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
plain = st.from_regex(r"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)
amounts = st.integers(1, 300).flatmap(lambda n: st.sampled_from([n / 100, -n / 100]))
sayable: st.SearchStrategy[Action] = st.one_of(
    *(st.builds(kind, spots) for kind in (Click, DoubleClick, RightClick, LongPress, Hover)),
    st.builds(Drag, spots, spots),
    st.builds(lambda t, n: Scroll(t, 0.0, n), st.none() | spots, amounts),
    st.builds(lambda t, n: Scroll(t, n, 0.0), st.none() | spots, amounts),
    st.builds(Type, words, st.none() | spots),
    st.builds(Key, plain),
    st.builds(Open, plain),
    st.builds(lambda n: Wait(n / 1000), st.integers(0, 60_000)),
    st.builds(Answer, words),
    st.builds(Finish, st.sampled_from(FinishStatus)),
    st.sampled_from([Back(), Home()]),
)  # fmt: skip


@given(sayable)
def test_what_is_said_is_read_back(action: Action):
    line = format_action(action, SEEN)
    assert line is not None
    assert "\n" not in line
    assert parse_action(line) == action


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_point_comes_back_within_half_a_thousandth(x: float, y: float):
    read = parse_action(format_action(Click(Point(x, y)), SEEN) or "")
    assert isinstance(read, Click)
    assert isinstance(read.target, Point)
    assert max(abs(read.target.x - x), abs(read.target.y - y)) <= 0.0005 + 1e-9


@given(st.one_of(st.text(max_size=60), st.builds(" ".join, st.lists(st.sampled_from(
    ["click", "type", "drag", "to", "scroll", "down", "[3]", "[", "(1, 2)", '"a"', '"', "wait", "finish", "9", "okay"]
), max_size=6))))  # fmt: skip
def test_reading_is_total(text: str):
    read = parse_action(text)
    if isinstance(read, Invalid):
        assert read.reason
        assert read.text == text.strip()


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("click okay [3]", Click(ElementId(3))),
        (" click [3] ", Click(ElementId(3))),
        ("click something else [3]", Click(ElementId(3))),
        ('type username [2] "bob"', Type("bob", ElementId(2))),
        ('type "a \\"b\\""', Type('a "b"')),
        ('type [2] "a "b" c"', Type('a "b" c', ElementId(2))),
        ('type [2] ""', Type("", ElementId(2))),
        ("drag a [1] to b [2]", Drag(ElementId(1), ElementId(2))),
        ("scroll down", Scroll(None, 0.0, 0.5)),
        ("scroll up 0.25 list [4]", Scroll(ElementId(4), 0.0, -0.25)),
        ("wait", Wait(1.0)),
        ("answer forty two", Answer("forty two")),
        ("finish infeasible", Finish(FinishStatus.INFEASIBLE)),
    ],
)
def test_lines_are_read_leniently(line: str, action: Action):
    assert parse_action(line) == action


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("", "empty"),
        ("clck okay [3]", "'clck' is no action"),
        ("click okay", "click label [number]"),
        ("click (1001, 2)", "click label [number]"),
        ("click a [1] b [2]", "click label [number]"),
        ("type bob", 'type label [number] "text"'),
        ("scroll sideways", "scroll down"),
        ("back now", "back"),
        ("wait long", "wait 1"),
        ("finish maybe", "finish or finish infeasible"),
    ],
)
def test_what_is_not_said_well_is_refused_with_advice(line: str, advice: str):
    read = parse_action(line)
    assert isinstance(read, Invalid)
    assert advice in read.reason


@pytest.mark.parametrize(
    "action", [Invalid("x", "y"), Scroll(None, 0.5, 0.5), Scroll(None, 0.0, 0.0), Key(""), Wait(-1.0)]
)
def test_what_has_no_line_is_not_said(action: Action):
    assert format_action(action, SEEN) is None


def test_a_label_cannot_break_the_grammar():
    assert shown_label('a "b"\n[7] c') == "a 'b' (7) c"
    assert shown_label("x" * 99, longest=5) == "xxxxx"


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("drag (0, 0) to okay [1]", Drag(Point(0.0, 0.0), ElementId(1))),
        ("drag card [4] to (500, 250)", Drag(ElementId(4), Point(0.5, 0.25))),
        ("drag back to top [4] to pile [7]", Drag(ElementId(4), ElementId(7))),
        ('type (100, 200) "see [1]"', Type("see [1]", Point(0.1, 0.2))),
    ],
)
def test_points_and_labels_may_stand_side_by_side(line: str, action: Action) -> None:
    assert parse_action(line) == action


def test_a_drag_to_nowhere_is_invalid() -> None:
    assert isinstance(parse_action("drag card [4] to nowhere"), Invalid)
