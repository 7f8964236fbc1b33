"""What the pixel policy can say, and that it comes back as it was meant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.codecs.pixel import PixelCodec, span_text, words_of
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
from cairn.data.history import Deed
from cairn.data.ids import ElementId
from cairn.data.observation import Box
from cairn.data.pixel_vocabulary import POINTED, Crop, PixelVocabulary, Verb
from cairn.errors import ConfigError, InvariantError
from shown_pages import element, page, turn

LAYOUT = PixelVocabulary()
CROP = Crop()
CODEC = PixelCodec(vocabulary=LAYOUT, crop=CROP)
GOAL = 'Enter the username "ada" and the password "x9!K", then press Login.'
EMPTY = page()

points = st.builds(Point, st.floats(0, 1), st.floats(50 / 210, 1))
alone: st.SearchStrategy[Action] = st.sampled_from([
    Back(), Home(), Wait(1.0), Finish(), Finish(FinishStatus.INFEASIBLE), Key("Enter"), Key("Control+a"),
])  # fmt: skip
pointing = st.one_of(*(st.builds(kind, points) for kind in (Click, DoubleClick, RightClick, LongPress, Hover)))
scrolls = st.builds(
    lambda target, way: Scroll(target, *way),
    points,
    st.sampled_from([(0.0, 0.5), (0.0, -0.5), (0.5, 0.0), (-0.5, 0.0)]),
)
sayable = st.one_of(alone, pointing, scrolls, st.builds(Drag, points, points))


def targets(action: Action) -> list[Point]:
    match action:
        case Click(t) | DoubleClick(t) | RightClick(t) | LongPress(t) | Hover(t) | Scroll(t, _, _):
            return [t] if isinstance(t, Point) else []
        case Drag(s, t):
            return [p for p in (s, t) if isinstance(p, Point)]
        case _:
            return []


@given(sayable)
def test_what_is_said_is_read_back_within_half_a_cell(action: Action):
    ids = CODEC.answers(GOAL, action, EMPTY)[0]
    read = CODEC.parse(GOAL, ids, EMPTY)
    assert type(read) is type(action)
    for meant, got in zip(targets(action), targets(read), strict=True):
        assert abs(meant.x - got.x) * 160 <= 2 + 1e-3
        assert abs(meant.y - got.y) * 210 <= 2 + 1e-3
    if not targets(action):
        assert read == action


@given(sayable)
def test_an_answer_ends_at_its_first_stop_token_and_holds_no_forbidden_one(action: Action):
    for ids in CODEC.answers(GOAL, action, EMPTY):
        stops = [int(i) in CODEC.stop_ids for i in ids]
        assert stops == [False] * (len(ids) - 1) + [True]
        assert len(ids) <= CODEC.max_answer_tokens
        assert not CODEC.forbidden_ids & set(ids.tolist())


@given(st.lists(st.integers(-5, LAYOUT.size + 5), max_size=5))
def test_reading_is_total_and_what_is_no_action_has_a_reason(ids: list[int]):
    read = CODEC.parse(GOAL, np.array(ids, np.int32), EMPTY)
    if isinstance(read, Invalid):
        assert read.reason
    elif not isinstance(read, Type):
        again = [a.tolist() for a in CODEC.answers(GOAL, read, EMPTY)]
        assert ids in again


@pytest.mark.parametrize("text", ["ada", "x9!K", "username", "press Login"])
def test_a_span_of_the_goal_is_typed_without_its_quotes(text: str):
    (ids, *_) = CODEC.answers(GOAL, Type(text), EMPTY)
    assert ids.shape == (2,)
    assert CODEC.parse(GOAL, ids, EMPTY) == Type(text)


def test_every_place_where_the_goal_says_it_is_an_answer():
    goal = "type one and then one"
    assert [a.tolist() for a in CODEC.answers(goal, Type("one"), EMPTY)] == [
        [LAYOUT.start + 1, LAYOUT.end + 1],
        [LAYOUT.start + 4, LAYOUT.end + 4],
    ]


@given(st.text(min_size=1, max_size=20).filter(lambda t: t.split() == t.split(" ") and '"' not in t))
def test_a_quoted_text_can_be_typed_whatever_it_holds(text: str):
    goal = f'Please enter "{text}".'
    assert any(CODEC.parse(goal, ids, EMPTY) == Type(text) for ids in CODEC.answers(goal, Type(text), EMPTY))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ('"Hello, you!".', "Hello, you!"),
        ("(ada),", "ada"),
        ("it's", "it's"),
        ("'a b'", "a b"),
        ('"', ""),
        ("01/02/2010.", "01/02/2010"),
    ],
)
def test_what_a_span_says(raw: str, said: str):
    assert span_text(raw) == said


@pytest.mark.parametrize(
    "action", [Answer("42"), Open("mail"), Key("F5"), Type("not in the goal"), Invalid("", ""), Click(Point(0.5, 0.1))]
)
def test_what_cannot_be_said_has_no_answer(action: Action):
    assert CODEC.answers(GOAL, action, EMPTY) == ()


def test_a_click_on_an_element_may_land_anywhere_well_inside_it_the_middle_first():
    box = Box(left=41 / 160, top=100 / 210, width=40 / 160, height=20 / 210)
    seen = page(element(1, box=box))
    clicks = [CODEC.parse(GOAL, ids, seen) for ids in CODEC.answers(GOAL, Click(ElementId(1)), seen)]
    places = [
        (c.target.x * 160, c.target.y * 210) for c in clicks if isinstance(c, Click) and isinstance(c.target, Point)
    ]
    assert len(set(places)) == len(clicks) == 7 * 4
    assert abs(places[0][0] - 61) <= 2
    assert abs(places[0][1] - 110) <= 2
    assert all(47 <= x <= 75 and 103 <= y <= 117 for x, y in places)


def test_a_tiny_element_is_clicked_in_the_cell_of_its_middle():
    seen = page(element(1, box=Box(left=0.5, top=0.5, width=0.001, height=0.001)))
    assert len(CODEC.answers(GOAL, Click(ElementId(1)), seen)) == 1


def test_a_field_is_focused_before_it_is_typed_into():
    wanted = Type("ada", ElementId(1))
    assert CODEC.primitive(wanted, page(element(1, role="input"))) == Click(ElementId(1))
    assert CODEC.primitive(wanted, page(element(1, role="input", states=("focused",)))) == Type("ada")


def test_what_is_out_of_sight_is_scrolled_to_first():
    below = page(element(1, box=Box(left=0.1, top=1.2, width=0.2, height=0.1)))
    scroll = CODEC.primitive(Click(ElementId(1)), below)
    assert isinstance(scroll, Scroll)
    assert scroll.dy > 0
    assert CODEC.answers(GOAL, scroll, below)
    assert CODEC.answers(GOAL, Click(ElementId(1)), below) == ()


def test_the_prompt_holds_words_shapes_letters_past_actions_and_one_image():
    seen = page(element(1))
    done = turn(Click(Point(0.5, 0.5)), seen)
    prompt = CODEC.prompt('Say "Hi"', [done], page(message="no element 7"))
    cell = LAYOUT.cell(Point(0.5, 0.5), CROP)
    assert cell is not None
    ids = prompt.token_ids.tolist()
    assert [LAYOUT.word <= i < LAYOUT.shape for i in ids].count(True) == 2
    assert ids[-5:] == [LAYOUT.TURN, LAYOUT.place + cell, LAYOUT.FAILED, LAYOUT.IMAGE, LAYOUT.ACT]
    quoted_capital = LAYOUT.shape + 1 + 2 + 4 + 8
    assert quoted_capital in ids
    assert prompt.images == (seen.image,)


def test_only_the_last_actions_are_in_the_prompt_and_one_without_tokens_is_marked():
    turns = [turn(Answer("x"), EMPTY) for _ in range(9)]
    ids = CODEC.prompt("go", turns, EMPTY).token_ids.tolist()
    assert ids.count(LAYOUT.TURN) == ids.count(LAYOUT.UNSAID) == 4


def test_a_page_without_a_screenshot_is_a_configuration_error():
    blind = page()
    object.__setattr__(blind, "image", None)
    with pytest.raises(ConfigError, match="screenshots"):
        CODEC.prompt("go", [], blind)


def test_verbs_can_be_barred():
    codec = PixelCodec(vocabulary=LAYOUT, crop=CROP, verbs=frozenset({Verb.ENTER}))
    allowed = {v for v in Verb if LAYOUT.verb_id(v) not in codec.forbidden_ids}
    assert allowed == {Verb.ENTER}


def test_what_a_barred_verb_would_say_is_no_answer_and_is_told_of_the_past_all_the_same():
    """An answer that cannot be sampled has no probability, and its loss would be infinite."""
    scroll = Scroll(Point(0.5, 0.5), 0.0, 0.5)
    codec = PixelCodec(vocabulary=LAYOUT, crop=CROP, verbs=frozenset())
    assert CODEC.answers("go", scroll, page())
    assert not codec.answers("go", scroll, page())
    assert codec.answers("go", Click(Point(0.5, 0.5)), page())
    told = Deed(action=scroll, observation=page())
    prompts = [one.prompt("go", [told], page()) for one in (codec, CODEC)]
    assert prompts[0].token_ids.tolist() == prompts[1].token_ids.tolist()


def test_every_prompt_only_id_is_forbidden_and_every_answer_id_allowed():
    assert CODEC.forbidden_ids == frozenset(range(LAYOUT.verb))


def test_verbs_that_a_place_follows_come_first():
    """The model tells them by their number."""
    assert set(LAYOUT.VERBS[: len(POINTED)]) == POINTED


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_point_has_a_cell_exactly_inside_the_crop(x: float, y: float):
    cell = LAYOUT.cell(Point(x, y), CROP)
    assert (cell is not None) == (y * 210 >= 50 - 1e-4)


def test_a_crop_off_its_screen_is_refused():
    with pytest.raises(InvariantError):
        Crop(top=100)


def test_words_are_runs_without_white_space():
    goal = " a  bc\nd"
    assert [goal[w] for w in words_of(goal)] == ["a", "bc", "d"]
