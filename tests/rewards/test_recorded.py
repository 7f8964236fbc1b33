"""An answer against the expert's action: kinds, places, texts and boxes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Hover,
    Invalid,
    Key,
    Open,
    Point,
    Scroll,
    Type,
)
from cairn.data.ids import ElementId
from cairn.data.observation import Box
from cairn.errors import ConfigError, VerifierError
from cairn.rewards.recorded import (
    HitRule,
    Place,
    WordRule,
    answered_box,
    boxes,
    in_place,
    lacks_box,
    same_parameters,
    text_of,
)
from rewards.judged_states import FIELD, NOTE, OKAY, SEEN, state

PLAIN = HitRule()
STRICT = HitRule(place=Place.STRICT)
NEAR = HitRule(place=Place.NEAR, share=0.14)
NOWHERE = ElementId(9)
BOX = Box(left=0.2, top=0.2, width=0.2, height=0.2)  # of the button


@pytest.mark.parametrize(
    ("action", "rule", "right"),
    [
        (Click(OKAY), PLAIN, True),
        (Click(FIELD), PLAIN, False),
        (Click(NOWHERE), PLAIN, False),
        (Click(Point(0.2, 0.2)), PLAIN, True),  # on its corner
        (Click(Point(0.2, 0.2)), STRICT, False),
        (Click(Point(0.21, 0.21)), STRICT, True),
        (Click(Point(0.41, 0.3)), PLAIN, False),
        (Click(Point(0.43, 0.3)), NEAR, True),  # 0.13 from its middle, though outside
        (Click(Point(0.45, 0.3)), NEAR, False),
        (DoubleClick(OKAY), PLAIN, False),
        (Hover(Point(0.3, 0.3)), PLAIN, False),
        (Invalid("?", "no"), PLAIN, False),
    ],
)
def test_a_click_is_in_its_place_by_the_rule(action: Action, rule: HitRule, right: bool) -> None:  # noqa: FBT001
    assert in_place(action, state(Click(OKAY)), rule) is right


def test_an_action_without_a_place_is_right_by_its_kind() -> None:
    assert in_place(Type("anything"), state(Type("bob", FIELD)), PLAIN)
    assert in_place(Back(), state(Back()), PLAIN)
    assert not in_place(Back(), state(Type("bob")), PLAIN)


def test_both_ends_of_a_drag_count() -> None:
    start = state(Drag(OKAY, FIELD))
    assert in_place(Drag(Point(0.3, 0.3), FIELD), start, PLAIN)
    assert not in_place(Drag(Point(0.3, 0.3), OKAY), start, PLAIN)
    assert not in_place(Drag(FIELD, FIELD), start, PLAIN)


def test_the_recorded_box_stands_for_the_elements_own() -> None:
    start = state(Click(OKAY), target=Box(left=0.6, top=0.6, width=0.1, height=0.1))
    assert in_place(Click(Point(0.65, 0.65)), start, PLAIN)
    assert not in_place(Click(Point(0.3, 0.3)), start, PLAIN)
    drag = state(Drag(OKAY, FIELD), target=Box(left=0.6, top=0.6, width=0.1, height=0.1))
    assert boxes(drag) == (drag.target, SEEN.elements[1].box)  # it is where the action begins


def test_of_a_point_the_smallest_usable_element_under_it_is_meant() -> None:
    small = replace(SEEN.elements[0], id=ElementId(4), box=Box(left=0.25, top=0.25, width=0.1, height=0.1))
    seen = replace(SEEN, elements=(*SEEN.elements, small))
    assert boxes(state(Click(Point(0.3, 0.3)), seen=seen)) == (small.box,)
    assert boxes(state(Click(Point(0.3, 0.8)))) == (None,)  # text alone is nothing to click on


def test_without_a_box_a_share_of_the_screen_decides_or_nobody_can() -> None:
    start = state(Click(Point(0.9, 0.9)))
    assert lacks_box(start)
    assert not lacks_box(state(Back()))
    shared = HitRule(place=Place.STRICT, share=0.14)
    assert in_place(Click(Point(0.9, 0.77)), start, shared)
    assert not in_place(Click(Point(0.9, 0.75)), start, shared)
    with pytest.raises(VerifierError, match="no box is known"):
        in_place(Click(Point(0.9, 0.9)), start, PLAIN)


def test_near_needs_a_share() -> None:
    with pytest.raises(ConfigError, match="needs a share"):
        HitRule(place=Place.NEAR)


EXACT, HALF = WordRule(least=None), WordRule(least=0.5)


@pytest.mark.parametrize(
    ("one", "other", "rule", "same"),
    [
        ("New  York", "new york", EXACT, True),
        ("new york city", "new york", EXACT, False),
        ("a b c d", "a b", HALF, True),  # an F1 of 2/3
        ("a b c", "a d e", HALF, False),  # 1/3
        ("a b", "a c", HALF, True),  # one half
        ("a b", "a c", WordRule(least=0.5, strict=True), False),
        ("", "", HALF, True),
        ("a", "", HALF, False),
    ],
)
def test_texts_are_the_same_by_the_rule(one: str, other: str, rule: WordRule, same: bool) -> None:  # noqa: FBT001
    assert rule.same(one, other) is same


@pytest.mark.parametrize(
    ("action", "expert", "right"),
    [
        (Type("bob", FIELD), Type("bob", FIELD), True),
        (Type("bob"), Type("bob", FIELD), True),  # wherever the focus is
        (Type("bob", FIELD), Type("bob"), True),
        (Type("bob", OKAY), Type("bob", FIELD), False),
        (Type("rob", FIELD), Type("bob", FIELD), False),
        (Answer("42"), Answer("42"), True),
        (Answer("41"), Answer("42"), False),
        (Open("Mail"), Open("mail"), True),
        (Open("Maps"), Open("Mail"), False),
        (Key("Control+a"), Key("a+control"), True),
        (Key("Enter"), Key("Tab"), False),
        (Scroll(None, 0.0, 1.0), Scroll(None, 0.0, 0.2), True),
        (Scroll(None, 0.0, 1.0), Scroll(None, 1.0, 0.2), False),
        (Finish(), Finish(FinishStatus.INFEASIBLE), False),
        (Click(OKAY), Click(OKAY), True),
        (Click(FIELD), Click(OKAY), False),
        (Back(), Back(), True),
    ],
)
def test_every_parameter_counts(action: Action, expert: Action, right: bool) -> None:  # noqa: FBT001
    assert same_parameters(action, state(expert), place=PLAIN, text=EXACT) is right


def test_a_swipe_begins_over_what_was_meant_where_that_is_asked_for() -> None:
    start, away = state(Scroll(OKAY, 0.0, 1.0)), Scroll(FIELD, 0.0, 1.0)
    assert same_parameters(away, start, place=PLAIN, text=EXACT)
    assert not same_parameters(away, start, place=PLAIN, text=EXACT, scroll_place=True)
    assert not same_parameters(Scroll(None, 0.0, 1.0), start, place=PLAIN, text=EXACT, scroll_place=True)
    assert same_parameters(Scroll(OKAY, 0.0, 1.0), start, place=PLAIN, text=EXACT, scroll_place=True)
    assert not same_parameters(Scroll(OKAY, 0.0, -1.0), start, place=PLAIN, text=EXACT, scroll_place=True)
    open_ground = state(Scroll(Point(0.9, 0.9), 0.0, 1.0))
    assert same_parameters(away, open_ground, place=PLAIN, text=EXACT, scroll_place=True)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Type("a"), "a"),
        (Answer("b"), "b"),
        (Open("c"), "c"),
        (Key("Enter"), "Enter"),
        (Scroll(None, 0.0, -1.0), "up"),
        (Scroll(None, 2.0, 1.0), "right"),
        (Click(OKAY), ""),
        (Scroll(None, 0.0, 0.0), ""),
    ],
)
def test_what_an_action_says_in_words(action: Action, text: str) -> None:
    assert text_of(action) == text


def test_a_box_is_answered_by_naming_an_element_or_by_a_drag_from_corner_to_corner() -> None:
    assert answered_box(Click(OKAY), SEEN) == BOX
    assert answered_box(Hover(NOTE), SEEN) == SEEN.elements[2].box
    assert answered_box(Click(NOWHERE), SEEN) is None
    assert answered_box(Click(Point(0.3, 0.3)), SEEN) is None
    assert answered_box(Back(), SEEN) is None
    drawn = answered_box(Drag(Point(0.4, 0.2), Point(0.2, 0.4)), SEEN)
    assert drawn is not None
    assert (drawn.left, drawn.top, drawn.width, drawn.height) == pytest.approx((0.2, 0.2, 0.2, 0.2))


shares = st.floats(0, 1)


@given(shares, shares)
def test_what_is_strictly_inside_is_inside(x: float, y: float) -> None:
    start, action = state(Click(OKAY)), Click(Point(x, y))
    assert in_place(action, start, PLAIN) >= in_place(action, start, STRICT)


@given(shares, shares, st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_a_wider_share_forgives_no_less(x: float, y: float, one: float, other: float) -> None:
    narrow, wide = sorted((one, other))
    start, action = state(Click(OKAY)), Click(Point(x, y))
    rules = [HitRule(place=Place.NEAR, share=share) for share in (narrow, wide)]
    assert in_place(action, start, rules[0]) <= in_place(action, start, rules[1])
