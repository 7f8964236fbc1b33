"""Pages and actions as short text, for any causal language model with a tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Int32

from cairn.codecs.past import EARLIER_PAGE, Telling, TextHistory, left_out, note_text, said_ids
from cairn.codecs.text_grammar import format_action, parse_action, shown_label
from cairn.data.action import (
    Action,
    Click,
    DoubleClick,
    Drag,
    Hover,
    Invalid,
    LongPress,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
)
from cairn.data.answer import AnswerShape, AnswerText
from cairn.data.observation import Element, Observation
from cairn.data.trajectory import Prompt
from cairn.ports import Past


class TextTokenizer(Protocol):
    """What a codec needs of a tokenizer."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a text (end of sequence, end of turn)."""
        ...

    @property
    def newline_ids(self) -> frozenset[int]:
        """Every token whose text holds a line break."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Every token that is not ordinary text, the ends included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, with no special tokens added."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """How much of a page is shown. What is left out is counted in the prompt."""

    elements: int = 40
    texts: int = 12  # of which may be text that is only there to be read
    label: int = 30  # characters
    characters: int = 1200  # of all lines together
    actions: int = 3  # past ones


class TextCodec:
    """Implements `ReadableCodec`: a prompt of goal, page and past actions; an answer of one line.

    Of earlier turns it tells the actions alone, unless `history` says otherwise: then every answer stays, in its own
    tokens, with its page or a placeholder for it. With whole pages a turn's prompt begins with the one before and its
    answer; without, each turn is a sample of its own, with exactly the ids that were sampled from.
    """

    def __init__(
        self,
        *,
        tokenizer: TextTokenizer,
        limits: PageLimits | None = None,
        max_answer_tokens: int = 32,
        history: TextHistory | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits or PageLimits()
        self._history = history or TextHistory()
        self._max_answer_tokens = max_answer_tokens
        self._newline = tokenizer.encode("\n")[0]
        self._stops = tokenizer.end_ids | tokenizer.newline_ids
        self._forbidden = tokenizer.special_ids - tokenizer.end_ids

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._stops

    @property
    def forbidden_ids(self) -> frozenset[int]:
        return self._forbidden

    @property
    def max_answer_tokens(self) -> int:
        return self._max_answer_tokens

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        head = f"Goal: {' '.join(goal.split())}"
        if self._history.telling is Telling.ACTIONS:
            ids = self._asked(head, page_text(seen, self._limits), past_text(turns, seen, self._limits))
            return Prompt(token_ids=np.array(ids, np.int32), images=())
        return Prompt(token_ids=np.array(self._exchanges(goal, head, turns, seen), np.int32), images=())

    def _asked(self, *lines: str) -> list[int]:
        return self._tokenizer.encode("\n".join([*(line for line in lines if line), "Act:"]))

    def _exchanges(self, goal: str, head: str, turns: Sequence[Past], seen: Observation) -> list[int]:
        """Every earlier page, or its placeholder, with what was answered; then the newest page."""
        kept = self._history.kept(turns)
        whole = self._history.telling is Telling.FULL
        opening = [head, left_out(turns, kept)]
        ids: list[int] = []
        for past in kept:
            page = page_text(past.observation, self._limits) if whole else EARLIER_PAGE
            ids += [*self._asked(*opening, page, note_text(past.observation.message)), *self._answered(goal, past)]
            opening = []
        return ids + self._asked(*opening, page_text(seen, self._limits), note_text(seen.message))

    def _answered(self, goal: str, past: Past) -> list[int]:
        """An answer's own tokens, or those in which it would have been said, up to the end of its line."""
        said = said_ids(past, self._tokenizer.end_ids)
        if said is None:
            known = self.answers(goal, past.action, past.observation)
            said = [int(i) for i in known[0]] if known else self._tokenizer.encode(" something")
        ended = bool(said) and said[-1] in self._tokenizer.newline_ids
        return said if ended else [*said, self._newline]

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        del goal, seen
        ids = [int(i) for i in token_ids]
        if ids[-1] not in self._stops:
            return Invalid(self._tokenizer.decode(ids), "the answer was cut before its line ended")
        return parse_action(self._tokenizer.decode(ids).split("\n", 1)[0])

    @property
    def shapes(self) -> frozenset[AnswerShape]:
        return frozenset({AnswerShape.ANSWER})

    def read(self, token_ids: Int32[np.ndarray, " C"]) -> AnswerText:
        ids = [int(i) for i in token_ids]
        text = self._tokenizer.decode(ids)
        line = text.strip()
        whole = ids[-1] in self._stops and bool(line) and "\n" not in line
        return AnswerText(text=text, shape=AnswerShape.ANSWER if whole else None)

    def primitive(self, action: Action, seen: Observation) -> Action:
        """Every action is one line."""
        del seen
        return action

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        del goal
        line = format_action(action, seen)
        if line is None:
            return ()
        return (np.array([*self._tokenizer.encode(f" {line}"), self._newline], np.int32),)


def page_text(seen: Observation, limits: PageLimits) -> str:
    """The page, one element a line: `okay [3] button`; text that is only there to be read as `- text`."""
    lines: list[str] = []
    texts = characters = left_out = 0
    for element in seen.elements:
        line = _line(element, limits)
        if not line:
            continue
        texts += not element.interactive
        full = len(lines) >= limits.elements or characters + len(line) > limits.characters
        if full or (texts > limits.texts and not element.interactive):
            left_out += 1
            continue
        lines.append(line)
        characters += len(line) + 1
    if left_out:
        lines.append(f"({left_out} more)")
    return "\n".join(lines)


def _line(element: Element, limits: PageLimits) -> str:
    label = shown_label(element.label, longest=limits.label)
    if not element.interactive:
        text = shown_label(element.label, longest=3 * limits.label)
        return f"- {text}" if text else ""
    parts = [label, f"[{element.id}]", element.role]
    if element.value:
        parts.append(f'= "{shown_label(element.value, longest=limits.label)}"')
    parts += ["on" if state == "checked" else state for state in element.states]
    return " ".join(part for part in parts if part)


def past_text(turns: Sequence[Past], seen: Observation, limits: PageLimits) -> str:
    """The last actions by label, since numbers change from page to page, and what the last one came to."""
    recent = turns[-limits.actions :] if limits.actions else ()
    lines = [f"Past: {'; '.join(said_briefly(t.action, t.observation) for t in recent)}"] if recent else []
    return "\n".join(line for line in (*lines, note_text(seen.message)) if line)


def said_briefly(action: Action, seen: Observation) -> str:
    """An action in a few words, things by their labels, since numbers change from page to page."""
    if isinstance(action, Invalid):
        return "an answer that said no action"
    said = " ".join(_words(action, seen)) or format_action(action, seen) or "something"
    return " ".join(said.split())[:60]


def _words(action: Action, seen: Observation) -> Iterator[str]:
    match action:
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            yield from ((format_action(action, seen) or "").partition(" ")[0], _name(target, seen))
        case Drag(source, target):
            yield from ("drag", _name(source, seen), "to", _name(target, seen))
        case Type(text, target):
            yield from ("type", *(() if target is None else (_name(target, seen),)), f'"{shown_label(text)}"')
        case Scroll(_, dx, dy):
            yield from ("scroll", ("down" if dy > 0 else "up") if dy else ("right" if dx > 0 else "left"))
        case _:
            return


def _name(target: Target, seen: Observation) -> str:
    if isinstance(target, Point):
        return f"({round(1000 * target.x)}, {round(1000 * target.y)})"
    element = seen.element(target)
    return "" if element is None else (shown_label(element.label) or element.role)
