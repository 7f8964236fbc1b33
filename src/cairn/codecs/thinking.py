"""Think, then act: the codec of larger chat models, over the model's own chat template."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Int32

from cairn.codecs.answer_parts import tagged, with_thought
from cairn.codecs.text import PageLimits, TextTokenizer, page_text, past_text
from cairn.codecs.text_grammar import format_action, parse_action
from cairn.data.action import Action, Invalid
from cairn.data.answer import AnswerShape, AnswerText
from cairn.data.observation import Observation
from cairn.data.trajectory import Prompt
from cairn.errors import ConfigError
from cairn.ports import Past

_ACTION = re.compile(r"<action>(?P<line>.*?)</action>", re.DOTALL)
_SHAPE = "answer with <think>…</think><action>…</action>"

ROOMY = PageLimits(elements=120, texts=60, label=60, characters=6000, actions=8)
"""For models that read long prompts."""

_THINK = "First think briefly, then act: <think>your thoughts</think><action>one action</action>"
_ACT = "Act at once, without a thought: <action>one action</action>"
_SYSTEM = """You operate a graphical interface to reach a goal. Each turn you see the page and say one action.
{how}
Actions, by an element's label and [number], or by (x, y) in thousandths of the screen:
click label [3] · double_click · right_click · long_press · hover · type label [2] "text" · type "text" ·
drag label [4] to label [7] · scroll down label [5] · key Enter · open what · back · home · wait 1 ·
answer "text" · finish · finish infeasible"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


class ChatTokenizer(TextTokenizer, Protocol):
    """A tokenizer that comes with a chat template."""

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the conversation, up to where the model's turn begins."""
        ...


def conversation(
    goal: str,
    turns: Sequence[Past],
    seen: Observation,
    *,
    limits: PageLimits = ROOMY,
    screenshot: str | None = None,
    think: bool = True,
) -> tuple[Message, ...]:
    """What a chat model is told before it answers; `screenshot` is the text that stands for an image."""
    parts = [
        screenshot or "",
        f"Goal: {goal.strip()}",
        page_text(seen, limits),
        past_text(turns, seen, limits),
    ]
    content = "\n".join(part for part in parts if part)
    system = _SYSTEM.replace("{how}", _THINK if think else _ACT)
    return (Message(role="system", content=system), Message(role="user", content=content))


def said_action(text: str) -> Action:
    """The action of an answer; `Invalid`, with what is wrong, where there is not exactly one after the thought."""
    found = _ACTION.findall(text.rpartition("</think>")[2])
    if len(found) == 1:
        return parse_action(found[0])
    return Invalid(text, f"{_SHAPE}, with one action" if found else _SHAPE)


class ThinkingCodec:
    """Implements `ReadableCodec` for chat models: free thought, then one action in the grammar of `text_grammar`.

    Without `think` the prompt asks for the action alone (UI-R1-E's NOTHINK), and experts answer so.

    `screenshot` is the text that stands for one image in the model's prompts, all of its placeholder tokens included;
    None for a model that cannot see. As in `TextCodec`, only the newest page is shown.
    """

    def __init__(
        self,
        *,
        tokenizer: ChatTokenizer,
        limits: PageLimits | None = None,
        screenshot: str | None = None,
        max_answer_tokens: int = 512,
        think: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits or ROOMY
        self._screenshot = screenshot
        self._max_answer_tokens = max_answer_tokens
        self._think = think
        # a model may have its own thinking tags as special tokens
        marks = {i for tag in ("<think>", "</think>") for i in (tokenizer.encode(tag),) if len(i) == 1 for i in i}
        self._forbidden = tokenizer.special_ids - tokenizer.end_ids - marks
        self._end = min(tokenizer.end_ids)

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._tokenizer.end_ids

    @property
    def forbidden_ids(self) -> frozenset[int]:
        return self._forbidden

    @property
    def max_answer_tokens(self) -> int:
        return self._max_answer_tokens

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        images = ()
        if self._screenshot is not None:
            if seen.image is None:
                raise ConfigError("this codec shows screenshots: let the environment take them")
            images = (seen.image,)
        told = conversation(goal, turns, seen, limits=self._limits, screenshot=self._screenshot, think=self._think)
        ids = self._tokenizer.chat(told)
        return Prompt(token_ids=np.array(ids, np.int32), images=images)

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        del goal, seen
        ids = [int(i) for i in token_ids]
        text = self._tokenizer.decode(ids)
        if ids[-1] not in self._tokenizer.end_ids and not _ACTION.search(text):
            return Invalid(text, "the answer was cut before it said an action; think more briefly")
        return said_action(text)

    @property
    def shapes(self) -> frozenset[AnswerShape]:
        return frozenset(AnswerShape) if self._think else frozenset({AnswerShape.ANSWER})

    def read(self, token_ids: Int32[np.ndarray, " C"]) -> AnswerText:
        return tagged(self._tokenizer.decode([int(i) for i in token_ids]), action="action")

    def primitive(self, action: Action, seen: Observation) -> Action:
        """Every action is one answer."""
        del seen
        return action

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        """The action without a thought: experts give none."""
        return self.explained(goal, "", action, seen)

    def explained(
        self, goal: str, thought: str, action: Action, seen: Observation
    ) -> Sequence[Int32[np.ndarray, " C"]]:
        """The action after the thought, where thoughts are asked for."""
        del goal
        line = format_action(action, seen)
        if line is None:
            return ()
        said = f"<action>{line}</action>"
        if self._think:
            said = with_thought(f"<think></think>{said}", thought)
        return (np.array([*self._tokenizer.encode(said), self._end], np.int32),)
