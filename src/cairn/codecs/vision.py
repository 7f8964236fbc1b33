"""Screenshots and actions of vision-language models: a chat over several turns, in a dialect that models are taught."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from jaxtyping import Int32

from cairn.codecs.answer_parts import with_thought
from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.dialects.grammar import Grammar
from cairn.codecs.text import PageLimits, page_text
from cairn.data.action import (
    Action,
    Click,
    DoubleClick,
    Invalid,
    Point,
    RightClick,
    Scroll,
    Type,
    target_of,
)
from cairn.data.answer import AnswerShape, AnswerText
from cairn.data.coordinates import Frame
from cairn.data.ids import ImageId
from cairn.data.observation import Box, Observation
from cairn.data.trajectory import Prompt, Turn
from cairn.errors import ConfigError
from cairn.ports import Past

_PAGE = PageLimits(elements=120, texts=60, label=60, characters=6000)
_OLD_SCREEN = "(an earlier screenshot)"
_SHARES = (0.5, 0.3, 0.7)  # of a box's sides: the middle first


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat: its screenshot, if any, comes before its text.

    `ids` are an answer's own tokens, which stand in the prompt as they were sampled, in place of `text`.
    """

    role: str
    text: str
    image: ImageId | None = None
    ids: tuple[int, ...] | None = None


class ChatProcessor(Protocol):
    """A tokenizer with a chat template and a way to see images, as a vision-language model's directory holds them."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Every token that is not ordinary text, the ends and the image placeholders included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, with no special tokens added."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, ends left out."""
        ...

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the conversation up to where the model's turn begins, with all placeholders of every image."""
        ...

    def frame(self, image: ImageId) -> Frame:
        """The coordinates in which the model points at things in `image`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is told beside the newest screenshot."""

    images: int = 2  # screenshots, the newest included; older ones become a few words
    turns: int = 8  # exchanges
    instructed: bool = True  # a message before the first explains the dialect

    def __post_init__(self) -> None:
        if self.images < 1 or self.turns < 0:
            raise ConfigError("a vision codec shows at least 1 screenshot and tells of at least 0 earlier turns")


class VisionCodec:
    """Implements `ReadableCodec` for vision-language models. Without `think` no thought is asked for (NOTHINK).

    A turn is a user's message with the screenshot and an answer, whose own tokens stay in later prompts. As long as
    nothing falls out of the history, a turn's prompt begins with the one before and its answer.
    """

    def __init__(
        self,
        *,
        processor: ChatProcessor,
        dialect: Dialect,
        history: History | None = None,
        max_answer_tokens: int = 256,
        think: bool = True,
    ) -> None:
        """Raises `ConfigError` where a dialect that asks for no thought, or knows no other way, is to be without."""
        self._processor = processor
        self._grammar = dialect.grammar if think else _bare(dialect)
        self._history = history or History()
        self._max_answer_tokens = max_answer_tokens
        self._forbidden = processor.special_ids - processor.end_ids
        self._end = min(processor.end_ids)

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._processor.end_ids

    @property
    def forbidden_ids(self) -> frozenset[int]:
        return self._forbidden

    @property
    def max_answer_tokens(self) -> int:
        return self._max_answer_tokens

    # ── asking ────────────────────────────────────────────────────────────────

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        recent = list(turns[-self._history.turns :]) if self._history.turns else []
        messages = list(self._conversation(goal, recent, seen, left_out=len(turns) - len(recent)))
        images = tuple(message.image for message in messages if message.image is not None)
        return Prompt(token_ids=np.array(self._processor.chat(messages), np.int32), images=images)

    def _conversation(
        self, goal: str, recent: Sequence[Past], seen: Observation, *, left_out: int
    ) -> Iterator[Message]:
        right, bottom = self._frame(seen).extent
        if self._history.instructed:
            yield Message(role="system", text=self._grammar.system.format(right=f"{right:g}", bottom=f"{bottom:g}"))
        opening = [f"Goal: {goal.strip()}", *([f"({left_out} earlier turns)"] if left_out else [])]
        for age, past in zip(range(len(recent), 0, -1), recent, strict=True):
            shown = past.observation.image if age < self._history.images else None
            yield self._asked(past.observation, opening, shown=shown, page=False)
            yield self._answered(past)
            opening = []
        yield self._asked(seen, opening, shown=seen.image, page=self._grammar.by_number)

    def _asked(self, seen: Observation, opening: Sequence[str], *, shown: ImageId | None, page: bool) -> Message:
        lines = [*([] if shown else [_OLD_SCREEN]), *opening, page_text(seen, _PAGE) if page else ""]
        if seen.message:
            lines.append(f"Note: {' '.join(seen.message.split())[:200]}")
        text = "\n".join(line for line in lines if line)
        return Message(role="user", text=text or "Go on.", image=shown)

    def _answered(self, past: Past) -> Message:
        if isinstance(past, Turn):
            said = [int(i) for i in past.completion.token_ids]
            ids = tuple(said[:-1] if said[-1] in self._processor.end_ids else said)
            return Message(role="assistant", text="", ids=ids)
        told = self._grammar.say(past.action, past.observation, self._frame(past.observation))
        return Message(role="assistant", text=told or "(something else)")

    def _frame(self, seen: Observation) -> Frame:
        if seen.image is None:
            raise ConfigError("a vision codec shows screenshots: let the environment take them")
        return self._processor.frame(seen.image)

    # ── reading ───────────────────────────────────────────────────────────────

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        del goal
        ids = [int(i) for i in token_ids]
        text = self._processor.decode(ids)
        if ids[-1] not in self._processor.end_ids:
            return Invalid(text, "the answer was cut before it ended")
        return self._grammar.read(text, self._frame(seen))

    @property
    def shapes(self) -> frozenset[AnswerShape]:
        return self._grammar.shapes

    def read(self, token_ids: Int32[np.ndarray, " C"]) -> AnswerText:
        return self._grammar.parts(self._processor.decode([int(i) for i in token_ids]))

    # ── saying ────────────────────────────────────────────────────────────────

    def primitive(self, action: Action, seen: Observation) -> Action:
        """Scroll towards what lies outside the screen, and click a field before typing into it."""
        target = target_of(action)
        element = None if target is None or isinstance(target, Point) else seen.element(target)
        if element is None or self._grammar.by_number:
            return action
        middle = element.box.top + element.box.height / 2
        if not 0 <= middle <= 1:
            return Scroll(None, 0.0, 0.5 if middle > 1 else -0.5)
        if isinstance(action, Type) and not self._grammar.fills:
            return Type(action.text) if "focused" in element.states else Click(element.id)
        return action

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        return self.explained(goal, "", action, seen)

    def explained(
        self, goal: str, thought: str, action: Action, seen: Observation
    ) -> Sequence[Int32[np.ndarray, " C"]]:
        """The same after a thought, in dialects that have any."""
        del goal
        frame = self._frame(seen)
        lines = [self._grammar.say(way, seen, frame) for way in self._ways(action, seen)]
        said = [line if line is None or not thought else with_thought(line, thought) for line in lines]
        return tuple(
            np.array([*self._processor.encode(line), self._end], np.int32)
            for line in dict.fromkeys(said)
            if line is not None
        )

    def _ways(self, action: Action, seen: Observation) -> Iterator[Action]:
        """The action itself, and for a click on an element clicks on other points of it."""
        yield action
        match action:
            case Click(target) | DoubleClick(target) | RightClick(target) if not isinstance(target, Point):
                element = None if self._grammar.by_number else seen.element(target)
                spots = () if element is None else _spots(element.box)
                yield from (replace(action, target=spot) for spot in spots)
            case _:
                return


def _bare(dialect: Dialect) -> Grammar:
    bare = dialect.grammar.bare
    if bare is None:
        raise ConfigError(
            f'policy.think = false: policy.codec = "{dialect}" has no form without a thought, or none with one; '
            f"those with both: {', '.join(one for one in Dialect if one.grammar.bare)}"
        )
    return bare


def _spots(box: Box) -> Iterator[Point]:
    """Points well inside a box, where they are on the screen."""
    for down in _SHARES:
        for across in _SHARES:
            x, y = box.left + across * box.width, box.top + down * box.height
            if 0 <= x <= 1 and 0 <= y <= 1:
                yield Point(x, y)
