"""Think, then act: the codec of larger chat models, over the model's own chat template."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Int32

from cairn.codecs.answer_parts import tagged, with_thought
from cairn.codecs.past import EARLIER_PAGE, Telling, TextHistory, left_out, note_text, said_ids
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
    """One message of a chat. `ids` are an answer's own tokens, which stand in the prompt in place of `content`."""

    role: str
    content: str
    ids: tuple[int, ...] | None = None


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
    parts = (screenshot or "", f"Goal: {goal.strip()}", page_text(seen, limits), past_text(turns, seen, limits))
    return (explained_format(think=think), _user(*parts))


def explained_format(*, think: bool) -> Message:
    """What the model is told of actions, and of how to answer."""
    return Message(role="system", content=_SYSTEM.replace("{how}", _THINK if think else _ACT))


def _user(*parts: str) -> Message:
    return Message(role="user", content="\n".join(part for part in parts if part))


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
    None for a model that cannot see. Earlier turns are told as in `TextCodec`.
    """

    def __init__(
        self,
        *,
        tokenizer: ChatTokenizer,
        limits: PageLimits | None = None,
        screenshot: str | None = None,
        max_answer_tokens: int = 512,
        think: bool = True,
        history: TextHistory | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits or ROOMY
        self._screenshot = screenshot
        self._max_answer_tokens = max_answer_tokens
        self._think = think
        self._history = history or TextHistory()
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
        system = (explained_format(think=self._think),) if self._history.instructed else ()
        ids = self._tokenizer.chat((*system, *self._exchanges(goal, turns, seen)))
        return Prompt(token_ids=np.array(ids, np.int32), images=images)

    def _exchanges(self, goal: str, turns: Sequence[Past], seen: Observation) -> Iterator[Message]:
        """The newest page; before it, where they are told one by one, earlier ones or their placeholders."""
        limits, telling = self._limits, self._history.telling
        head = [f"Goal: {goal.strip()}"]
        if telling is Telling.ACTIONS:
            yield _user(self._screenshot or "", *head, page_text(seen, limits), past_text(turns, seen, limits))
            return
        kept = self._history.kept(turns)
        head.append(left_out(turns, kept))
        for past in kept:
            page = page_text(past.observation, limits) if telling is Telling.FULL else EARLIER_PAGE
            yield _user(*head, page, note_text(past.observation.message))
            yield self._answered(past)
            head = []
        yield _user(self._screenshot or "", *head, page_text(seen, limits), note_text(seen.message))

    def _answered(self, past: Past) -> Message:
        ids = said_ids(past, self._tokenizer.end_ids)
        if ids is not None:
            return Message(role="assistant", content="", ids=tuple(ids))
        line = format_action(past.action, past.observation)
        said = "(something else)" if line is None else self._said(line, thought="")
        return Message(role="assistant", content=said)

    def _said(self, line: str, *, thought: str) -> str:
        said = f"<action>{line}</action>"
        return with_thought(f"<think></think>{said}", thought) if self._think else said

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
        said = self._said(line, thought=thought)
        return (np.array([*self._tokenizer.encode(said), self._end], np.int32),)
