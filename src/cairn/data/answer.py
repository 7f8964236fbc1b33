"""An answer as text: what a reward may look at besides the action that was read from it."""

from dataclasses import dataclass
from enum import StrEnum


class AnswerShape(StrEnum):
    """The forms that a whole answer may have, from its first token to its last."""

    THINK_ANSWER = "think_answer"  # a thought, then the action, each in its own tags, and nothing else
    ANSWER = "answer"  # the action alone


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerText:
    """The text of one answer, by its parts."""

    text: str
    thought: str = ""  # empty where there is none
    shape: AnswerShape | None = None  # None: neither
