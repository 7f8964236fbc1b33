"""What a text prompt tells of earlier turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cairn.data.trajectory import Turn
from cairn.errors import ConfigError
from cairn.ports import Past

EARLIER_PAGE = "(an earlier page)"
"""Stands for a page that was shown before."""


class Telling(StrEnum):
    """How much of each earlier turn stays."""

    ACTIONS = "actions"  # the last few actions, in one line
    COMPRESSED = "compressed"  # every answer, after a placeholder for its page (WebAgent-R1, arXiv:2505.16421)
    FULL = "full"  # every answer, after its page


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHistory:
    """What a text prompt tells beside the newest page. Older exchanges than `turns` are counted."""

    telling: Telling = Telling.ACTIONS
    turns: int = 8
    instructed: bool = True  # of chats: a message before the first explains how to answer

    def __post_init__(self) -> None:
        if self.turns < 0:
            raise ConfigError("a text codec tells of at least 0 earlier turns")

    def kept(self, turns: Sequence[Past]) -> Sequence[Past]:
        """The newest of the exchanges."""
        return turns[-self.turns :] if self.turns else ()


def left_out(turns: Sequence[Past], kept: Sequence[Past]) -> str:
    """A line about the turns that are not told; empty where all are."""
    count = len(turns) - len(kept)
    return f"({count} earlier turns)" if count else ""


def note_text(message: str, *, longest: int = 120) -> str:
    """What the agent was told about its last action; empty where that is nothing."""
    return f"Note: {' '.join(message.split())[:longest]}" if message else ""


def said_ids(past: Past, ends: frozenset[int]) -> list[int] | None:
    """An answer's own tokens, as they were sampled, without the one that ended it; None where none were sampled."""
    if not isinstance(past, Turn):
        return None
    ids = [int(i) for i in past.completion.token_ids]
    return ids[:-1] if ids[-1] in ends else ids
