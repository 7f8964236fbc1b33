"""When two actions are the same, rule by rule."""

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
from cairn.data.matching import Matching, PlaceRule, TextRule, element_under, token_f1
from cairn.data.observation import Box, Element, Observation
from cairn.errors import ConfigError

BUTTON = Element(
    id=ElementId(1), role="button", label="", value="", states=(), interactive=True,
    box=Box(left=0.4, top=0.4, width=0.2, height=0.2),
)  # fmt: skip
FIELD = replace(BUTTON, id=ElementId(2), role="input", box=Box(left=0.42, top=0.42, width=0.2, height=0.2))
SEEN = Observation(image=None, elements=(BUTTON, FIELD), accessibility="", url="", digest="")
PAPER = Matching()
ONE, TWO, GONE = ElementId(1), ElementId(2), ElementId(9)
HERE, NEAR, FAR = Point(0.5, 0.5), Point(0.55, 0.45), Point(0.551, 0.5)


def test_what_cannot_be_operated_is_never_the_element_under_a_place() -> None:
    label = replace(BUTTON, id=ElementId(3), interactive=False, box=Box(left=0.49, top=0.49, width=0.02, height=0.02))
    seen = replace(SEEN, elements=(BUTTON, label))
    assert element_under(HERE, seen) == ONE
    assert element_under(HERE, replace(SEEN, elements=(label,))) is None


@pytest.mark.parametrize("kind", [Click, DoubleClick, RightClick, LongPress, Hover])
def test_places_within_the_tolerance_are_one_place(kind: type[Click]) -> None:
    assert PAPER.same(kind(HERE), kind(NEAR), SEEN)
    assert not PAPER.same(kind(HERE), kind(FAR), SEEN)
    assert not PAPER.same(kind(HERE), kind(Point(0.5, 0.551)), SEEN)


def test_an_element_stands_for_its_middle_but_two_elements_are_two() -> None:
    assert PAPER.same(Click(ONE), Click(NEAR), SEEN)
    assert not PAPER.same(Click(ONE), Click(FAR), SEEN)
    assert not PAPER.same(Click(ONE), Click(TWO), SEEN)
    assert not PAPER.same(Click(GONE), Click(HERE), SEEN)
    assert PAPER.same(Click(GONE), Click(GONE), SEEN)


def test_clicks_on_one_element_are_one_click_where_elements_count() -> None:
    rules = Matching(places=PlaceRule.ELEMENT)
    wide = replace(BUTTON, box=Box(left=0.0, top=0.1, width=1.0, height=0.05))
    word = replace(wide, id=ElementId(2), role="link", box=Box(left=0.1, top=0.1, width=0.1, height=0.05))
    text = replace(wide, id=ElementId(3), interactive=False)
    seen = replace(SEEN, elements=(wide, word, text))
    start, end, on_word = Click(Point(0.0, 0.12)), Click(Point(1.0, 0.1)), Click(Point(0.15, 0.12))
    assert rules.same(start, end, seen)
    assert rules.same(Click(ONE), end, seen)
    assert not PAPER.same(start, end, seen)
    assert rules.same(on_word, Click(TWO), seen)  # the smaller of two, one inside the other
    assert not rules.same(start, on_word, seen)
    assert not rules.same(start, Click(Point(0.0, 0.2)), seen)  # near, and beside it
    assert rules.same(Click(Point(0.5, 0.5)), Click(Point(0.54, 0.5)), seen)  # both beside everything
    assert rules.same(Type("a", ONE), Type("b", end.target), seen)
    assert not rules.same(Drag(start.target, ONE), Drag(end.target, ONE), seen)  # where a drag begins matters


def test_a_drag_is_the_same_where_both_ends_are() -> None:
    assert PAPER.same(Drag(HERE, Point(0.1, 0.1)), Drag(NEAR, Point(0.12, 0.1)), SEEN)
    assert not PAPER.same(Drag(HERE, Point(0.1, 0.1)), Drag(HERE, Point(0.3, 0.1)), SEEN)


def test_swipes_of_one_direction_are_one_swipe() -> None:
    assert PAPER.same(Scroll(HERE, 0.1, 0.9), Scroll(None, -0.3, 0.4), SEEN)
    assert not PAPER.same(Scroll(None, 0.0, 0.5), Scroll(None, 0.0, -0.5), SEEN)
    assert not PAPER.same(Scroll(None, 0.5, 0.0), Scroll(None, 0.0, 0.5), SEEN)
    assert not PAPER.same(Scroll(None, 0.5, 0.0), Scroll(None, -0.5, 0.0), SEEN)
    assert not PAPER.same(Scroll(None, 0.0, 0.0), Scroll(None, 0.0, 0.5), SEEN)


def test_typed_text_is_compared_by_the_rule() -> None:
    red, crimson, deep = Type("Red "), Type("crimson"), Type("deep red")
    exact, overlap = Matching(text=TextRule.EXACT), Matching(text=TextRule.OVERLAP)
    assert PAPER.same(red, crimson, SEEN)
    assert exact.same(red, Type("red"), SEEN)
    assert not exact.same(red, deep, SEEN)
    assert overlap.same(red, deep, SEEN)
    assert not overlap.same(red, crimson, SEEN)
    assert exact.same(Answer("yes"), Answer("YES"), SEEN)
    assert not exact.same(Answer("yes"), Answer("no"), SEEN)


def test_text_for_another_field_is_another_action() -> None:
    assert not PAPER.same(Type("a", ONE), Type("a", TWO), SEEN)
    assert PAPER.same(Type("a", ONE), Type("b"), SEEN)


def test_other_arguments_are_compared_in_their_normal_form() -> None:
    assert PAPER.same(Key("Control+A"), Key("a+control"), SEEN)
    assert not PAPER.same(Key("Control+a"), Key("a"), SEEN)
    assert PAPER.same(Open("https://a.test/"), Open(" HTTPS://a.test"), SEEN)
    assert not PAPER.same(Open("a"), Open("b"), SEEN)
    assert PAPER.same(Wait(1.0), Wait(2.0), SEEN)
    assert PAPER.same(Back(), Back(), SEEN)
    assert not PAPER.same(Finish(FinishStatus.DONE), Finish(FinishStatus.INFEASIBLE), SEEN)


def test_what_cannot_be_parsed_is_one_class_and_never_the_experts() -> None:
    one, other = Invalid("x", "no"), Invalid("y", "nope")
    assert PAPER.same(one, other, SEEN)
    assert not PAPER.agrees(one, other, SEEN)
    assert PAPER.agrees(Click(HERE), Click(NEAR), SEEN)


def test_a_tolerance_is_a_share() -> None:
    with pytest.raises(ConfigError, match="share of the screen"):
        Matching(tolerance=1.5)


def test_words_in_common() -> None:
    assert token_f1("a b", "B c d") == pytest.approx(0.4)
    assert token_f1("", "") == 1.0
    assert token_f1("", "a") == 0.0


def test_a_chain_of_near_places_is_cut_where_the_first_member_says() -> None:
    chain: list[Action] = [Click(Point(x, 0.5)) for x in (0.56, 0.5, 0.53, 0.59)]
    assert PAPER.clusters(chain, SEEN) == ((1, 2), (0, 3))


points = st.builds(Point, st.floats(0, 1), st.floats(0, 1))
targets = points | st.sampled_from([ONE, TWO, GONE])
texts = st.sampled_from(["", "red", "Red", "deep red"])
actions = st.one_of(
    *(st.builds(kind, targets) for kind in (Click, DoubleClick, RightClick, LongPress, Hover)),
    st.builds(Drag, targets, targets),
    st.builds(Scroll, st.none() | targets, st.floats(-1, 1), st.floats(-1, 1)),
    st.builds(Type, texts, st.none() | targets),
    st.builds(Key, st.sampled_from(["Enter", "Control+a", "a+Control", "+"])),
    st.builds(Open, texts),
    st.builds(Answer, texts),
    st.builds(Finish, st.sampled_from(list(FinishStatus))),
    st.builds(Wait, st.floats(0, 5)),
    st.sampled_from([Back(), Home(), Invalid("?", "no")]),
)


@given(actions, actions, st.sampled_from(list(TextRule)), st.sampled_from(list(PlaceRule)))
def test_being_the_same_is_reflexive_and_symmetric(
    one: Action, other: Action, text: TextRule, places: PlaceRule
) -> None:
    rules = Matching(text=text, places=places)
    assert rules.same(one, one, SEEN)
    assert rules.same(one, other, SEEN) == rules.same(other, one, SEEN)


@given(st.lists(actions, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_clusters_are_a_partition_that_does_not_depend_on_the_order(some: list[Action], order: object) -> None:
    found = PAPER.clusters(some, SEEN)
    assert sorted(index for cluster in found for index in cluster) == list(range(len(some)))
    shuffled = list(range(len(some)))
    order.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue]
    again = PAPER.clusters([some[i] for i in shuffled], SEEN)
    assert sorted(map(len, again)) == sorted(map(len, found))
