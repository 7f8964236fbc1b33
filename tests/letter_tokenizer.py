"""A tokenizer of one token for each character, small enough to read."""

from collections.abc import Sequence

from cairn.codecs.thinking import Message

END = 1
IMAGE = 2
FIRST = 10


class LetterTokenizer:
    """Ids are code points + 10; 0 to 2 are special."""

    end_ids = frozenset({END})
    newline_ids = frozenset({ord("\n") + FIRST})
    special_ids = frozenset({0, END, IMAGE})

    def encode(self, text: str) -> list[int]:
        return [ord(c) + FIRST for c in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i - FIRST) for i in token_ids if i >= FIRST)

    def chat(self, messages: Sequence[Message]) -> list[int]:
        ids = [i for m in messages for i in (*self.encode(f"<{m.role}>"), *(m.ids or self.encode(m.content)))]
        return [*ids, *self.encode("<assistant>")]
