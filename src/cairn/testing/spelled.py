"""A processor that spells: one token for each character, one for each image. Proves coordinates without a model."""

import io
from collections.abc import Sequence
from typing import Protocol

from PIL import Image

from cairn.data.coordinates import CoordinateSpace, Frame
from cairn.data.ids import ImageId
from cairn.ports import BlobStore

_PAD, _END, _IMAGE, _FIRST = 0, 1, 2, 10


class SpelledMessage(Protocol):
    """One message of a chat, its image before its text."""

    @property
    def role(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def image(self) -> ImageId | None: ...

    @property
    def ids(self) -> tuple[int, ...] | None: ...


class SpellingProcessor:
    """Ids are code points + 10; 0 to 2 are special. Images are resized to whole multiples of `factor`, as models do."""

    end_ids = frozenset({_END})
    special_ids = frozenset({_PAD, _END, _IMAGE})

    def __init__(self, *, blobs: BlobStore, space: CoordinateSpace, factor: int = 28) -> None:
        self._blobs = blobs
        self._space = space
        self._factor = factor

    def encode(self, text: str) -> list[int]:
        """One token for each character."""
        return [ord(letter) + _FIRST for letter in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The characters; special tokens are left out."""
        return "".join(chr(i - _FIRST) for i in token_ids if i >= _FIRST)

    def chat(self, messages: Sequence[SpelledMessage]) -> list[int]:
        """The messages, each after its role and its image."""
        ids: list[int] = []
        for message in messages:
            ids += self.encode(f"<{message.role}>")
            ids += [_IMAGE] if message.image is not None else []
            ids += self.encode(message.text) if message.ids is None else message.ids
        return [*ids, *self.encode("<assistant>")]

    def frame(self, image: ImageId) -> Frame:
        """The image's own size, rounded."""
        with Image.open(io.BytesIO(self._blobs.get(image))) as opened:
            width, height = (max(1, round(side / self._factor)) * self._factor for side in opened.size)
        return Frame(space=self._space, width=width, height=height)
