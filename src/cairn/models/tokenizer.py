"""A Hugging Face tokenizer as the codecs want it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from cairn.errors import ConfigError


class ChatMessage(Protocol):
    """One message of a chat."""

    @property
    def role(self) -> str: ...

    @property
    def content(self) -> str: ...


_TURN_ENDS = ("<|im_end|>", "<end_of_utterance>")


class HubTokenizer:
    """The tokenizer in a model's directory. Its sets of ids are computed once, at the start."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids) | frozenset(
            i for i, token in tokenizer.added_tokens_decoder.items() if token.special
        )
        ends = (tokenizer.eos_token_id, *(tokenizer.convert_tokens_to_ids(end) for end in _TURN_ENDS))
        self._ends = frozenset(i for i in ends if isinstance(i, int) and i != tokenizer.unk_token_id) & self._special
        if not self._ends:
            raise ConfigError(f"the tokenizer {tokenizer.name_or_path} has no end-of-sequence token")
        texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
        self._newlines = frozenset(i for i, text in enumerate(texts) if "\n" in text)

    @classmethod
    def load(cls, path: Path) -> "HubTokenizer":
        """From a directory; ConfigError where it holds none."""
        try:
            return cls(AutoTokenizer.from_pretrained(path, local_files_only=True))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} holds no tokenizer: {error}") from error

    def save(self, folder: Path) -> None:
        """Write the tokenizer beside a saved model."""
        self._tokenizer.save_pretrained(folder)

    def require_size(self, known: int) -> None:
        """Raise a `ConfigError` where it has more tokens than a model knows: the two do not belong together."""
        if len(self._tokenizer) > known:
            raise ConfigError(
                f"the tokenizer {self._tokenizer.name_or_path} has {len(self._tokenizer)} tokens and the model's "
                f"vocabulary {known}: they do not belong together"
            )

    @property
    def end_ids(self) -> frozenset[int]:
        """End of sequence and, where there is one, end of a chat turn."""
        return self._ends

    @property
    def newline_ids(self) -> frozenset[int]:
        """Every token whose text holds a line break."""
        return self._newlines

    @property
    def special_ids(self) -> frozenset[int]:
        """Every special token, the ends included."""
        return self._special

    @property
    def special_texts(self) -> Sequence[str]:
        """Every special token as text, the longest first."""
        texts = {str(token) for token in self._tokenizer.convert_ids_to_tokens(sorted(self._special))}
        return sorted(texts, key=lambda text: (-len(text), text))

    @property
    def has_template(self) -> bool:
        """Whether `chat` and `render` can be called."""
        return self._tokenizer.chat_template is not None

    def set_template(self, template: str) -> None:
        """Take a chat template that was stored elsewhere."""
        self._tokenizer.chat_template = template

    def id_of(self, token: str) -> int | None:
        """The id of one token; None where there is no such."""
        found = self._tokenizer.convert_tokens_to_ids(token)
        return found if isinstance(found, int) and found != self._tokenizer.unk_token_id else None

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, with no special tokens added; what looks like one is read as text's own."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens left out."""
        kept = [i for i in token_ids if i not in self._ends]
        return str(self._tokenizer.decode(kept, clean_up_tokenization_spaces=False))

    def chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of the conversation, up to where the model's turn begins."""
        return self.encode(self.render([{"role": m.role, "content": m.content} for m in messages]))

    def render(self, turns: Sequence[Mapping[str, object]], *, opened: bool = True) -> str:
        """The conversation as the chat template writes it; `opened`: up to where the model's turn begins."""
        if self._tokenizer.chat_template is None:
            raise ConfigError(f"the tokenizer {self._tokenizer.name_or_path} has no chat template")
        conversation = cast("list[dict[str, str]]", turns)  # contents may be lists of parts, too
        return str(self._tokenizer.apply_chat_template(conversation, add_generation_prompt=opened, tokenize=False))
