"""Thought, then one action."""

import numpy as np
import pytest

from cairn.codecs.thinking import ThinkingCodec
from cairn.data.action import Action, Click, Invalid, Point, Type
from cairn.data.answer import AnswerShape
from cairn.data.ids import ElementId
from cairn.errors import ConfigError
from letter_tokenizer import END, LetterTokenizer
from shown_pages import element, page

TOKENIZER = LetterTokenizer()
CODEC = ThinkingCodec(tokenizer=TOKENIZER)
SEEN = page(element(1, "okay"), element(2, "name", role="input"))


def read(text: str, *, ended: bool = True) -> Action:
    ids = [*TOKENIZER.encode(text), *([END] if ended else [])]
    return CODEC.parse("go", np.array(ids, np.int32), SEEN)


@pytest.mark.parametrize("action", [Click(ElementId(1)), Type("bob", ElementId(2)), Click(Point(0.25, 0.5))])
def test_an_experts_action_is_said_and_read_back(action: Action):
    (ids,) = CODEC.answers("go", action, SEEN)
    assert int(ids[-1]) in CODEC.stop_ids
    assert CODEC.parse("go", ids, SEEN) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>It is okay.</think><action>click okay [1]</action>", Click(ElementId(1))),
        ("<think>First <action>click [2]</action>? No.</think>\n<action> click [1] </action>", Click(ElementId(1))),
        ("<action>click (500, 250)</action>", Click(Point(0.5, 0.25))),
    ],
)
def test_the_action_after_the_thought_counts(text: str, action: Action):
    assert read(text) == action


@pytest.mark.parametrize(
    ("text", "ended", "reason"),
    [
        ("<think>hm</think> click okay [1]", True, "<action>"),
        ("<action>click [1]</action><action>click [2]</action>", True, "one action"),
        ("<think>hm, let me see", False, "cut"),
        ("<think></think><action>clack [1]</action>", True, "no action"),
    ],
)
def test_an_answer_without_one_action_is_invalid_and_told_why(text: str, ended: bool, reason: str):  # noqa: FBT001
    said = read(text, ended=ended)
    assert isinstance(said, Invalid)
    assert reason in said.reason


def test_the_prompt_is_a_chat_with_the_page():
    text = TOKENIZER.decode(CODEC.prompt("Press okay", [], SEEN).token_ids.tolist())
    assert text.startswith("<system>You operate")
    assert "<user>Goal: Press okay\nokay [1] button\nname [2] input<assistant>" in text


def test_a_screenshot_is_shown_where_the_model_can_see():
    codec = ThinkingCodec(tokenizer=TOKENIZER, screenshot="@@")
    prompt = codec.prompt("go", [], SEEN)
    assert prompt.images == (SEEN.image,)
    assert "<user>@@\nGoal: go" in TOKENIZER.decode(prompt.token_ids.tolist())
    blind = page()
    object.__setattr__(blind, "image", None)
    with pytest.raises(ConfigError, match="screenshots"):
        codec.prompt("go", [], blind)


THOUGHT, ACTION = "<think>It is okay.</think>", "<action>click okay [1]</action>"


@pytest.mark.parametrize(
    ("text", "shape", "thought"),
    [
        (THOUGHT + ACTION, AnswerShape.THINK_ANSWER, "It is okay."),
        (f"\n{THOUGHT}\n{ACTION} \n", AnswerShape.THINK_ANSWER, "It is okay."),
        (f"<think></think>{ACTION}", AnswerShape.THINK_ANSWER, ""),
        (f"<think>First {ACTION}? No.</think>{ACTION}", AnswerShape.THINK_ANSWER, f"First {ACTION}? No."),
        (ACTION, AnswerShape.ANSWER, ""),
        (f"Well. {ACTION}", None, ""),
        (f"{THOUGHT} So: {ACTION}", None, "It is okay."),
        (f"{THOUGHT}{ACTION} Done.", None, "It is okay."),
        (ACTION + ACTION, None, ""),
        (THOUGHT + THOUGHT + ACTION, None, "It is okay."),
        (ACTION + THOUGHT, None, "It is okay."),
        (THOUGHT, None, "It is okay."),
        ("<think>It is", None, ""),
        ("", None, ""),
    ],
)
def test_an_answer_has_a_shape_where_nothing_stands_beside_its_parts(
    text: str, shape: AnswerShape | None, thought: str
):
    said = CODEC.read(np.array([*TOKENIZER.encode(text), END], np.int32))
    assert (said.shape, said.thought, said.text) == (shape, thought, text)


def test_without_thinking_the_action_alone_is_asked_for_and_shown():
    codec = ThinkingCodec(tokenizer=TOKENIZER, think=False)
    told = TOKENIZER.decode(codec.prompt("go", [], SEEN).token_ids.tolist())
    assert "<think>" not in told
    assert "<action>one action</action>" in told
    (ids,) = codec.answers("go", Click(ElementId(1)), SEEN)
    assert codec.read(ids).shape is AnswerShape.ANSWER
    assert codec.parse("go", ids, SEEN) == Click(ElementId(1))
    assert codec.shapes == {AnswerShape.ANSWER}
    (ids,) = CODEC.answers("go", Click(ElementId(1)), SEEN)
    assert CODEC.read(ids).shape is AnswerShape.THINK_ANSWER
