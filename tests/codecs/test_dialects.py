"""Every dialect says actions and reads them back, refuses what holds none with a reason, and never raises."""

import math
import random
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.dialects.literals import DEEPEST, LONGEST, read_call, read_value
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
from cairn.data.answer import AnswerShape
from cairn.data.coordinates import CoordinateSpace, Frame
from cairn.data.ids import ElementId
from cairn.data.observation import Box
from shown_pages import element, page

FRAMES = [
    Frame(space=CoordinateSpace.FRACTIONS),
    Frame(space=CoordinateSpace.THOUSANDTHS),
    Frame(space=CoordinateSpace.PIXELS, width=1092, height=1932),
]
SEEN = page(element(1, "okay"), element(2, "name", role="input"))
D = Dialect
PLACED = Point(0.25, 0.5)

each_dialect = pytest.mark.parametrize("dialect", Dialect)
each_frame = pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f.space)

SAID: list[tuple[Action, frozenset[Dialect]]] = [
    (Click(PLACED), frozenset(D)),
    (DoubleClick(PLACED), frozenset(D) - {D.QWEN_MOBILE, D.INFIGUI}),
    (RightClick(PLACED), frozenset({D.UI_TARS, D.QWEN_COMPUTER, D.GUI_R1, D.BROWSERGYM})),
    (LongPress(PLACED), frozenset({D.UI_TARS, D.QWEN_MOBILE, D.INFIGUI, D.GUI_R1, D.MOBILEGYM})),
    (Hover(PLACED), frozenset({D.UI_TARS, D.QWEN_COMPUTER, D.BROWSERGYM})),
    (Drag(PLACED, Point(0.75, 0.125)), frozenset({D.UI_TARS, D.QWEN_COMPUTER, D.MOBILEGYM, D.BROWSERGYM})),
    (Scroll(Point(0.5, 0.5), 0.0, 0.5), frozenset(D) - {D.BROWSERGYM}),
    (Scroll(Point(0.5, 0.5), -0.5, 0.0), frozenset(D) - {D.BROWSERGYM}),
    (Scroll(None, 0.0, -0.5), frozenset({D.QWEN_COMPUTER, D.GUI_R1, D.BROWSERGYM})),
    (Type('it\'s "so"\nand \\ ünï'), frozenset(D)),
    (Key("Control+c"), frozenset({D.UI_TARS, D.QWEN_COMPUTER, D.GUI_R1, D.BROWSERGYM})),
    (Key("Enter"), frozenset(D)),
    (Key("ArrowDown"), frozenset({D.UI_TARS, D.QWEN_COMPUTER, D.GUI_R1, D.BROWSERGYM})),
    (Open("Maps"), frozenset(D) - {D.QWEN_COMPUTER}),
    (Back(), frozenset(D) - {D.QWEN_COMPUTER}),
    (Home(), frozenset(D) - {D.QWEN_COMPUTER, D.BROWSERGYM}),
    (Wait(5.0), frozenset({D.UI_TARS, D.QWEN_COMPUTER, D.QWEN_MOBILE, D.INFIGUI, D.MOBILEGYM, D.BROWSERGYM})),
    (Wait(1.0), frozenset(D) - {D.UI_TARS}),
    (Answer("42 'pounds'"), frozenset(D)),
    (Finish(), frozenset(D) - {D.BROWSERGYM}),
    (Finish(FinishStatus.INFEASIBLE), frozenset(D)),
]


def close(one: Action, other: Action) -> bool:
    """Equal but for the rounding of coordinates."""
    if type(one) is not type(other):
        return False
    for name in type(one).__dataclass_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, Point) and isinstance(b, Point):
            if max(abs(a.x - b.x), abs(a.y - b.y)) > 1.01e-3:
                return False
        elif isinstance(a, float):
            if abs(a - b) > 2e-3:
                return False
        elif a != b:
            return False
    return True


@each_frame
@pytest.mark.parametrize(("action", "sayable"), SAID, ids=lambda x: type(x).__name__ if isinstance(x, Action) else "")
def test_what_a_dialect_can_say_it_reads_back(action: Action, sayable: frozenset[Dialect], frame: Frame) -> None:
    for dialect in sorted(sayable):
        said = dialect.grammar.say(action, SEEN, frame)
        assert said is not None, dialect
        assert close(action, dialect.grammar.read(said, frame)), (dialect, said)


@each_dialect
def test_no_dialect_says_an_action_that_reads_back_as_a_different_one(dialect: Dialect) -> None:
    for action, sayable in SAID:
        said = dialect.grammar.say(action, SEEN, FRAMES[1])
        if dialect not in sayable and said is not None:
            again = dialect.grammar.read(said, FRAMES[1])
            assert type(again) is type(action), (action, said)


@each_dialect
def test_nothing_is_said_for_an_invalid_action(dialect: Dialect) -> None:
    assert dialect.grammar.say(Invalid("x", "y"), SEEN, FRAMES[0]) is None


@each_dialect
def test_an_element_is_pointed_at_in_its_middle_or_by_its_number(dialect: Dialect) -> None:
    said = dialect.grammar.say(Click(ElementId(2)), SEEN, FRAMES[1])
    assert said is not None
    read = dialect.grammar.read(said, FRAMES[1])
    box = SEEN.elements[1].box
    assert close(read, Click(ElementId(2) if dialect.grammar.by_number else box.center))
    missing = dialect.grammar.say(Click(ElementId(9)), SEEN, FRAMES[1])
    assert missing is None or dialect.grammar.by_number


MALFORMED: list[tuple[Dialect, str, str]] = [
    (D.UI_TARS, "I would click.", "no action"),
    (D.UI_TARS, "Action: click(start_box='(1,2)')\nAction: wait()", "more than one"),
    (D.UI_TARS, "Action: click(start_box='(1,2", "does not end"),
    (D.UI_TARS, "Action: click()", "wants start_box"),
    (D.UI_TARS, "Action: click(start_box='(1,2000)')", "outside"),
    (D.UI_TARS, "Action: __import__('os').system('true')", "there is"),
    (D.UI_TARS, "Action: scroll(start_box='(1,2)', direction='inwards')", "direction"),
    (D.QWEN_COMPUTER, "left_click", "no tool call"),
    (D.QWEN_COMPUTER, '<tool_call>{"name": "computer_use"}</tool_call>', "arguments"),
    (D.QWEN_COMPUTER, '<tool_call>{"name": "mobile_use", "arguments": {"action": "click"}}</tool_call>', "tool is"),
    (D.QWEN_COMPUTER, '<tool_call>{"name": "computer_use", "arguments": {"action": "leap"}}</tool_call>', "leap"),
    (
        D.QWEN_COMPUTER,
        '<tool_call>{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [1]}}</tool_call>',
        "two numbers",
    ),
    (
        D.QWEN_COMPUTER,
        '<tool_call>{"name": "computer_use", "arguments": {"action": "left_click_drag", "coordinate": [1, 2]}}',
        "mouse_move",
    ),
    (
        D.QWEN_MOBILE,
        '<tool_call>{"name": "mobile_use", "arguments": {"action": "system_button", "button": "Menu"}}</tool_call>',
        "button",
    ),
    (
        D.QWEN_MOBILE,
        '<tool_call>{"name": "mobile_use", "arguments": {"action": "swipe", "coordinate": [1, 2], '
        '"coordinate2": [1, 2]}}</tool_call>',
        "elsewhere",
    ),
    (D.INFIGUI, '<tool_call>{"name": "mobile_use", "arguments": {"action": "wait"}}</tool_call>', "no thought"),
    (D.GUI_R1, "<think></think>[{'action': 'click'}]", "<answer>"),
    (D.GUI_R1, "<think></think><answer>[{'action': 'click', 'point': [1, 2]}, {'action': 'wait'}]</answer>", "one"),
    (D.GUI_R1, "<think></think><answer>[{'action': 'type', 'input_text': 3}]</answer>", "text in quotes"),
    (D.MOBILEGYM, "<think></think><answer>CLICK 3 4</answer>", "no value"),
    (D.MOBILEGYM, '<think></think><answer>{"action": "FLY"}</answer>', "FLY"),
    (D.MOBILEGYM, '<think></think><answer>{"action": "CLICK", "point": [1, true]}</answer>', "two numbers"),
    (D.BROWSERGYM, "click(a51)", "no value"),
    (D.BROWSERGYM, "click('a51')", "number in quotes"),
    (D.BROWSERGYM, "fill('12')", "wants value"),
    (D.BROWSERGYM, "click('1'); click('2')", "more after"),
    (D.BROWSERGYM, "exec('1')", "exec"),
]


@pytest.mark.parametrize(("dialect", "text", "reason"), MALFORMED)
def test_a_malformed_answer_is_invalid_and_told_why(dialect: Dialect, text: str, reason: str) -> None:
    read = dialect.grammar.read(text, FRAMES[1])
    assert isinstance(read, Invalid)
    assert reason in read.reason
    assert read.text == text


READ: list[tuple[Dialect, str, Action]] = [
    (D.UI_TARS, "Thought: so.\nAction: click(start_box='<|box_start|>(250,500)<|box_end|>')", Click(PLACED)),
    (D.UI_TARS, "Action: click(start_box='[200, 400, 300, 600]')", Click(PLACED)),
    (D.UI_TARS, "Action: click(point='<point>250 500</point>')", Click(PLACED)),
    (D.UI_TARS, "Action: left_single((250, 500))", Click(PLACED)),
    (D.UI_TARS, "Action: hotkey(key='ctrl+shift+t')", Key("Control+Shift+t")),
    (D.UI_TARS, "Action: finished(content='')", Finish()),
    (
        D.QWEN_COMPUTER,
        '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [250, 500]}}',
        Click(PLACED),
    ),
    (
        D.QWEN_COMPUTER,
        '<tool_call>{"name": "computer_use", "arguments": {"action": "scroll", "pixels": -250}}</tool_call>',
        Scroll(None, 0.0, 0.25),
    ),
    (
        D.QWEN_MOBILE,
        '<tool_call>{"name": "mobile_use", "arguments": {"action": "swipe", "coordinate": [500, 800], '
        '"coordinate2": [500, 200]}}</tool_call>',
        Scroll(Point(0.5, 0.5), 0.0, 0.6),
    ),
    (
        D.INFIGUI,
        '<think>a <tool_call> comes</think><tool_call>{"name": "mobile_use", "arguments": {"action": "wait"}}',
        Wait(1.0),
    ),
    (D.GUI_R1, '<think>x</think>\n<answer>[{"action": "click", "point": [250, 500]}]</answer>', Click(PLACED)),
    (
        D.GUI_R1,
        "<think>x</think><answer>[{'action': 'scroll', 'point': [-100, -100], 'input_text': 'down'}]</answer>",
        Scroll(None, 0.0, 0.5),
    ),
    (D.MOBILEGYM, '<think>x</think><answer>{"action": "tap", "point": [250, 500]}</answer>', Click(PLACED)),
    (
        D.MOBILEGYM,
        '<think>x</think><answer>{"action": "TYPE", "value": "ada", "point": [250, 500]}</answer>',
        Type("ada", PLACED),
    ),
    (D.BROWSERGYM, "<think>it is 12</think><action>click('12')</action>", Click(ElementId(12))),
    (D.BROWSERGYM, "```click('12')```", Click(ElementId(12))),
    (D.BROWSERGYM, 'fill("12", "a, b (c)")', Type("a, b (c)", ElementId(12))),
    (D.BROWSERGYM, "select_option(bid='7', options=['Red'])", Type("Red", ElementId(7))),
    (D.BROWSERGYM, "drag_and_drop('3', '4')", Drag(ElementId(3), ElementId(4))),
    (D.BROWSERGYM, "press('12', 'Enter')", Key("Enter")),
]


@pytest.mark.parametrize(("dialect", "text", "action"), READ)
def test_published_ways_to_say_an_action_are_read(dialect: Dialect, text: str, action: Action) -> None:
    read = dialect.grammar.read(text, FRAMES[1])
    assert close(read, action), read


@given(st.sampled_from(list(Dialect)), st.integers(0, 2**32))
def test_reading_is_total_and_bounded(dialect: Dialect, seed: int) -> None:
    """Damaged answers: pieces of real ones, cut, doubled and mixed with noise."""
    chance = random.Random(seed)
    action = chance.choice(SAID)[0]
    text = dialect.grammar.say(action, SEEN, FRAMES[1]) or "Action: "
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text) + 1)
        noise = "".join(chance.choices(string.printable + "()[]{}'\"\\é\ud800", k=chance.randrange(4)))
        text = text[: chance.randrange(at + 1)] + noise + text[at:]
    read = dialect.grammar.read(text, FRAMES[1])
    if isinstance(read, Invalid):
        assert 0 < len(read.reason) < 400


@example("1e5")
@given(st.text(max_size=60))
def test_a_value_is_read_or_refused(text: str) -> None:
    try:
        value = read_value(text)
    except ValueError:
        pass
    else:
        assert not isinstance(value, float) or math.isfinite(value)


def test_values_are_read_as_json_and_python_write_them() -> None:
    wanted = {"a": [1, -2.5, True, None], "b": "it's", "c": {"d": []}}
    assert read_value('{"a": [1, -2.5, true, null], "b": "it\'s", "c": {"d": []}}') == wanted
    assert read_value("{'a': (1, -2.5, True, None), 'b': 'it\\'s', 'c': {'d': [],},}") == wanted
    assert read_value('"\\u00e9\\n\\x41"') == "é\nA"
    call = read_call("f(1, 'a=b', key = \"c\")")
    assert (call.name, call.positional, dict(call.named)) == ("f", (1, "a=b"), {"key": "c"})


@pytest.mark.parametrize(
    "text", ["[" * (DEEPEST + 2), "'" + "a" * LONGEST, "[1 2]", "{1: 2}", "", "'open", "nan", "9" * 400, "f(1)(2)"]
)
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_value(text)


@each_frame
@given(st.floats(0, 1), st.floats(0, 1))
def test_a_point_is_said_within_half_a_unit(frame: Frame, x: float, y: float) -> None:
    across, down = (float(n) for n in frame.say(Point(x, y)))
    read = frame.read(across, down)
    assert read is not None
    assert abs(read.x - x) <= 0.0005 + 1e-9
    assert abs(read.y - y) <= 0.0005 + 1e-9


@pytest.mark.parametrize(("x", "y"), [(-1.0, 5.0), (5.0, 1001.0), (math.nan, 1.0), (math.inf, 1.0)])
def test_a_place_outside_the_screen_is_none(x: float, y: float) -> None:
    assert FRAMES[1].read(x, y) is None


def test_what_is_far_outside_the_middle_scrolls_within_the_screen() -> None:
    low = page(element(1, "end"))
    object.__setattr__(low.elements[0], "box", Box(left=0.4, top=0.95, width=0.2, height=0.04))
    said = D.QWEN_MOBILE.grammar.say(Scroll(ElementId(1), 0.0, 0.5), low, FRAMES[1])
    assert said is not None
    read = D.QWEN_MOBILE.grammar.read(said, FRAMES[1])
    assert isinstance(read, Scroll)
    assert read.dy > 0


# ── what rewards look at ──────────────────────────────────────────────────────

BOTH, ALONE = AnswerShape.THINK_ANSWER, AnswerShape.ANSWER
EXPERT_SHAPES = {D.GUI_R1: BOTH, D.MOBILEGYM: BOTH, D.INFIGUI: BOTH}  # an empty thought; the others say none


@each_frame
@pytest.mark.parametrize(("action", "sayable"), SAID, ids=lambda x: type(x).__name__ if isinstance(x, Action) else "")
def test_what_an_expert_says_is_well_formed(action: Action, sayable: frozenset[Dialect], frame: Frame) -> None:
    for dialect in sayable:
        said = dialect.grammar.say(action, SEEN, frame)
        assert said is not None
        shape = dialect.grammar.parts(said).shape
        assert shape is EXPERT_SHAPES.get(dialect, ALONE)
        assert shape in dialect.grammar.shapes


THOUGHT: dict[Dialect, str] = {
    D.UI_TARS: "Thought: hm\n{}",
    D.GUI_R1: "<think>hm</think>{}",
    D.MOBILEGYM: "<think>hm</think>{}",
    D.INFIGUI: "<think>hm</think>\n{}",
}


@pytest.mark.parametrize("dialect", THOUGHT)
def test_a_thought_is_read_and_is_part_of_the_form(dialect: Dialect) -> None:
    grammar = dialect.grammar
    said = grammar.say(Click(PLACED), SEEN, FRAMES[1])
    assert said is not None
    act = said.replace("<think></think>", "").strip()
    whole = THOUGHT[dialect].format(act)
    assert grammar.parts(whole).shape is BOTH
    assert grammar.parts(whole).thought == "hm"
    assert grammar.parts(act).shape is ALONE
    assert isinstance(grammar.read(whole, FRAMES[1]), Click)
    for broken in (f"Well. {whole}", f"{whole}\nThere.", whole.replace(act, ""), whole.replace(act, f"{act}\n{act}")):
        assert grammar.parts(broken).shape is None


@each_dialect
def test_what_is_broken_or_of_another_dialect_has_no_form(dialect: Dialect) -> None:
    grammar = dialect.grammar
    said = grammar.say(Click(PLACED), SEEN, FRAMES[1])
    assert said is not None
    for broken in (f"{said}\n{said}\n{said}", f"{said}\nand so on\n", "", "<think>hm</think>\n<act>no</act>"):
        assert grammar.parts(broken).shape is None


@pytest.mark.parametrize("dialect", [one for one in Dialect if one.grammar.bare])
def test_a_dialect_that_thinks_can_be_asked_not_to(dialect: Dialect) -> None:
    grammar = dialect.grammar.bare
    assert grammar is not None
    assert grammar.shapes == {ALONE}
    assert "think" not in grammar.system.casefold()
    assert "think" in dialect.grammar.system.casefold()
    assert grammar.fills == dialect.grammar.fills
    said = grammar.say(Click(PLACED), SEEN, FRAMES[1])
    assert said is not None
    assert grammar.parts(said).shape is ALONE
    assert grammar.read(said, FRAMES[1]) == Click(PLACED)
    assert grammar.say(Invalid("x", "y"), SEEN, FRAMES[1]) is None


def test_only_what_thinks_has_a_form_with_a_thought() -> None:
    assert {one for one in Dialect if BOTH in one.grammar.shapes} == set(THOUGHT)
