"""Prompts as text, and answers of one line."""

from collections.abc import Sequence

import numpy as np
from inline_snapshot import snapshot

from cairn.codecs.text import PageLimits, TextCodec
from cairn.data.action import Action, Back, Click, Drag, Invalid, Point, Scroll, Type
from cairn.data.ids import ElementId
from cairn.data.observation import Observation
from letter_tokenizer import END, LetterTokenizer
from shown_pages import element, page, turn

TOKENIZER = LetterTokenizer()
CODEC = TextCodec(tokenizer=TOKENIZER)
SEEN = page(
    element(1, "Choose your\n options", role="text", interactive=False),
    element(2, "username", role="input", value="bob", states=("focused",)),
    element(3, "I agree", role="checkbox", states=("checked", "disabled")),
    element(4, "okay"),
    element(5, role="image", interactive=False),
)


def shown(goal: str, turns: Sequence[tuple[Action, Observation]], seen: Observation, codec: TextCodec = CODEC) -> str:
    made = [turn(action, page_) for action, page_ in turns]
    return TOKENIZER.decode(codec.prompt(goal, made, seen).token_ids.tolist())


def test_the_prompt_is_goal_page_past_actions_and_a_cue():
    past = [
        (Back(), SEEN),
        (Click(ElementId(4)), SEEN),
        (Type("bob", ElementId(2)), SEEN),
        (Scroll(None, 0.0, 0.5), SEEN),
    ]
    assert shown("Log in\nas bob.", past, SEEN) == snapshot("""\
Goal: Log in as bob.
- Choose your options
username [2] input = "bob" focused
I agree [3] checkbox on disabled
okay [4] button
Past: click okay; type username "bob"; scroll down
Act:\
""")


def test_what_the_last_action_came_to_is_told_and_an_invalid_answer_is_not_repeated():
    assert shown("go", [(Invalid("blah blah", "say more"), SEEN)], page(message="no  element 7")) == snapshot("""\
Goal: go
Past: an answer that said no action
Note: no element 7
Act:\
""")


def test_a_long_page_is_cut_and_says_how_much_is_missing():
    texts = [element(i, f"paragraph {i}", role="text", interactive=False) for i in range(1, 6)]
    buttons = [element(i, f"button {i} with a long label", role="button") for i in range(6, 16)]
    codec = TextCodec(tokenizer=TOKENIZER, limits=PageLimits(elements=5, texts=2, label=8))
    assert shown("go", [], page(*texts, *buttons), codec) == snapshot("""\
Goal: go
- paragraph 1
- paragraph 2
button 6 [6] button
button 7 [7] button
button 8 [8] button
(10 more)
Act:\
""")


def test_characters_of_a_page_are_bounded():
    codec = TextCodec(tokenizer=TOKENIZER, limits=PageLimits(characters=100))
    many = page(*(element(i, f"label {i}") for i in range(1, 99)))
    assert len(shown("go", [], many, codec)) < 140


def test_an_answer_is_one_line_and_is_read_back():
    for action in (Click(ElementId(4)), Type('say "hi"', ElementId(2)), Drag(ElementId(3), Point(0.5, 0.25))):
        (ids,) = CODEC.answers("go", action, SEEN)
        assert [int(i) in CODEC.stop_ids for i in ids] == [False] * (len(ids) - 1) + [True]
        assert CODEC.parse("go", ids, SEEN) == action


def test_what_cannot_be_said_has_no_answer():
    assert CODEC.answers("go", Invalid("x", "y"), SEEN) == ()


def test_an_answer_may_end_at_the_end_of_text_and_a_cut_one_is_invalid():
    line = [*TOKENIZER.encode(" click okay [4]")]
    assert CODEC.parse("go", np.array([*line, END], np.int32), SEEN) == Click(ElementId(4))
    cut = CODEC.parse("go", np.array(line, np.int32), SEEN)
    assert isinstance(cut, Invalid)
    assert "cut" in cut.reason


def test_special_tokens_are_forbidden_except_the_ends():
    assert CODEC.forbidden_ids == frozenset({0, 2})
    assert END in CODEC.stop_ids


def test_every_action_is_its_own_primitive():
    assert CODEC.primitive(Type("a", ElementId(2)), SEEN) == Type("a", ElementId(2))
