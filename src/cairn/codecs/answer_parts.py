"""The parts of an answer in text, and its shape: what rewards of formats and thoughts look at. Total and pure."""

import re

from cairn.data.answer import AnswerShape, AnswerText

_THINK = "think"


def tagged(text: str, *, action: str, most: int = 1) -> AnswerText:
    """Of answers in tags: `<think>…</think><ACTION>…</ACTION>`, or the second part alone, which may come `most` times.

    It has a shape where nothing but white space stands before, between or after its parts. What is thought may name the
    action's tags.
    """
    thought = re.search(rf"<{_THINK}>(?P<thought>.*?)</{_THINK}>", text, re.DOTALL)
    whole = re.fullmatch(
        rf"\s*(?:<{_THINK}>(?P<thought>(?:(?!</?{_THINK}>).)*)</{_THINK}>\s*)?"
        rf"(?:<{action}>(?:(?!</?(?:{_THINK}|{action})>).)*</{action}>\s*){{1,{most}}}",
        text,
        re.DOTALL,
    )
    return AnswerText(
        text=text,
        thought=thought["thought"].strip() if thought else "",
        shape=None if whole is None else _shape(thinks=whole["thought"] is not None),
    )


def labelled(text: str, *, thought: str = "Thought:", action: str = "Action:") -> AnswerText:
    """Of answers in lines, such as UI-TARS's: a thought of one line or more after its label, then the action's line."""
    whole = re.fullmatch(
        rf"\s*(?:{re.escape(thought)}(?P<thought>(?:(?!^{re.escape(action)}).)*)^)?{re.escape(action)}[^\n]*\S\s*",
        text,
        re.DOTALL | re.MULTILINE,
    )
    begun = re.search(
        rf"^{re.escape(thought)}(?P<thought>.*?)(?=^{re.escape(action)}|\Z)", text, re.DOTALL | re.MULTILINE
    )
    return AnswerText(
        text=text,
        thought=begun["thought"].strip() if begun else "",
        shape=None if whole is None else _shape(thinks=whole["thought"] is not None),
    )


def single(text: str) -> AnswerText:
    """Of answers that are one line, and nothing before it or after."""
    alone = len(text.strip().splitlines()) == 1
    return AnswerText(text=text, shape=AnswerShape.ANSWER if alone else None)


NO_THOUGHT = f"<{_THINK}></{_THINK}>"
"""Before an answer in tags that somebody gave who says no thoughts."""
_TAGS = re.compile(r"</?(?:think|action|answer|tool_call)>|Action:")


def with_thought(answer: str, thought: str) -> str:
    """An answer whose thought is empty, with this one; unchanged where its form has no place for any.

    What would be taken for a part's tag or label is left out of the thought, and it becomes one line.
    """
    said = " ".join(_TAGS.sub(" ", thought).split())
    if answer.startswith(NO_THOUGHT):
        return f"<{_THINK}>{said}</{_THINK}>{answer.removeprefix(NO_THOUGHT)}"
    return f"Thought: {said}\n{answer}" if answer.startswith("Action:") else answer


def _shape(*, thinks: bool) -> AnswerShape:
    return AnswerShape.THINK_ANSWER if thinks else AnswerShape.ANSWER
