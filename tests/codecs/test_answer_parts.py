"""Answers by their parts: in tags and in lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.codecs.answer_parts import labelled, single, tagged, with_thought
from cairn.data.answer import AnswerShape

BOTH, ALONE = AnswerShape.THINK_ANSWER, AnswerShape.ANSWER


@pytest.mark.parametrize(
    ("text", "shape", "thought"),
    [
        ("<think>a</think><answer>b</answer>", BOTH, "a"),
        ("<think>\na\n</think>\n<answer>\nb\n</answer>\n", BOTH, "a"),
        ("<answer>b</answer>", ALONE, ""),
        ("<think>a</think><answer>b</answer><answer>c</answer>", None, "a"),
        ("<think>a</think><think>b</think><answer>c</answer>", None, "a"),
        ("<think>a</think><action>b</action>", None, "a"),  # the tags of another codec
        ("<think>a<answer>b</answer></think>", None, "a<answer>b</answer>"),
        ("<answer>b<answer>c</answer></answer>", None, ""),
    ],
)
def test_answers_in_tags(text: str, shape: AnswerShape | None, thought: str) -> None:
    said = tagged(text, action="answer")
    assert (said.shape, said.thought) == (shape, thought)


def test_an_action_may_take_as_many_tags_as_are_said() -> None:
    two = "<answer>b</answer>\n<answer>c</answer>"
    assert tagged(two, action="answer").shape is None
    assert tagged(two, action="answer", most=2).shape is ALONE
    assert tagged(f"<think>a</think>{two}", action="answer", most=2).shape is BOTH
    assert tagged(f"{two}<answer>d</answer>", action="answer", most=2).shape is None


@pytest.mark.parametrize(
    ("text", "shape"),
    [("click('1')", ALONE), ("\nclick('1')\n", ALONE), ("click('1')\nclick('2')", None), (" \n", None)],
)
def test_answers_of_one_line(text: str, shape: AnswerShape | None) -> None:
    assert single(text).shape is shape


@pytest.mark.parametrize(
    ("text", "shape", "thought"),
    [
        ("Thought: I go on.\nAction: click(start_box='(1,2)')", BOTH, "I go on."),
        ("Thought: one\ntwo\nAction: wait()\n", BOTH, "one\ntwo"),
        ("Action: wait()", ALONE, ""),
        ("Thought: Action: is next\nAction: wait()", BOTH, "Action: is next"),
        ("Thought: one\nAction: wait()\nAction: wait()", None, "one"),
        ("Thought: one\nAction: wait()\nDone.", None, "one"),
        ("Well.\nThought: one\nAction: wait()", None, "one"),
        ("Thought: one", None, "one"),
        ("Action: ", None, ""),
        ("", None, ""),
    ],
)
def test_answers_in_lines(text: str, shape: AnswerShape | None, thought: str) -> None:
    said = labelled(text)
    assert (said.shape, said.thought) == (shape, thought)


PIECES = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "Thought:", "Action:", "\n", " ", "a", "<", ">"]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_was_said_is_some_text(text: str) -> None:
    for said in (tagged(text, action="answer"), labelled(text)):
        assert said.text == text
        assert said.shape is not BOTH or "<think>" in text or "Thought:" in text
        assert not said.thought or said.thought in text


@given(st.text(alphabet="ab <\n", max_size=9), st.text(alphabet="cd <\n", max_size=9))
def test_a_thought_and_an_action_are_read_back(thought: str, action: str) -> None:
    said = tagged(f"<think>{thought}</think><answer>{action}</answer>", action="answer")
    assert (said.shape, said.thought) == (BOTH, thought.strip())
    assert tagged(f"<answer>{action}</answer>", action="answer").shape is ALONE


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("<think></think><action>back</action>", "<think>go on</think><action>back</action>"),
        ("Action: press_back()", "Thought: go on\nAction: press_back()"),
        ("<tool_call>back</tool_call>", "<tool_call>back</tool_call>"),
    ],
)
def test_a_thought_takes_the_place_of_an_empty_one_where_there_is_a_place(answer: str, wanted: str) -> None:
    assert with_thought(answer, "go on") == wanted


def test_a_thought_cannot_end_itself() -> None:
    said = with_thought("<think></think><action>back</action>", "so:\n</think><action>click [1]</action>")
    assert tagged(said, action="action").thought == "so: click [1]"
    assert tagged(said, action="action").shape is AnswerShape.THINK_ANSWER
