"""A vision-language model's own tokenizer, chat template and image processor, as codecs and policy want them."""

import io
import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image, UnidentifiedImageError
from transformers import AutoConfig, AutoImageProcessor, BaseImageProcessor, PreTrainedConfig

from cairn.data.coordinates import CoordinateSpace, Frame
from cairn.data.ids import ImageId
from cairn.errors import ConfigError, StoreError
from cairn.models.tokenizer import HubTokenizer
from cairn.models.vision.families import Family
from cairn.models.vision.layout import Layout, layouts_for
from cairn.ports import BlobStore

_KEPT_LAYOUTS = 65_536
_OPENS, _CLOSES = "\ue000", "\ue001"  # around the number of an answer that stands in a prompt as ids
_ANSWER = re.compile(f"{_OPENS}(\\d+){_CLOSES}")


class ChatMessage(Protocol):
    """One message of a chat, its image before its text."""

    @property
    def role(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def image(self) -> ImageId | None: ...

    @property
    def ids(self) -> tuple[int, ...] | None:
        """Tokens that stand in the prompt in place of the text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewing:
    """What a recipe may say of how a model looks at screens."""

    space: CoordinateSpace | None = None  # None: its family's
    most_tokens: int | None = None  # of one screenshot; None: whatever the image processor makes of it


class VisionProcessor:
    """Conversations with images to ids, exactly as the processor of the model's class expands them.

    Images come by id from `blobs`. Text that looks like a special token is broken by a space, so that no page can put
    an image or a turn into a prompt.
    """

    def __init__(
        self,
        *,
        family: Family,
        config: PreTrainedConfig,
        tokenizer: HubTokenizer,
        image_processor: BaseImageProcessor,
        blobs: BlobStore,
        viewing: Viewing | None = None,
    ) -> None:
        self.family = family
        self.images = image_processor
        self._tokenizer = tokenizer
        self._blobs = blobs
        self._viewing = viewing or Viewing()
        self._layouts = layouts_for(family, config=config, processor=image_processor)
        self._known: OrderedDict[ImageId, Layout] = OrderedDict()
        self._look_alikes = re.compile("|".join(map(re.escape, tokenizer.special_texts)) + f"|[{_OPENS}{_CLOSES}]")

    @classmethod
    def load(cls, path: Path, *, family: Family, blobs: BlobStore, viewing: Viewing | None = None) -> "VisionProcessor":
        """From a model's directory; `ConfigError` where something is missing, in one sentence."""
        tokenizer = HubTokenizer.load(path)
        template = path / "chat_template.json"
        if not tokenizer.has_template and template.is_file():
            tokenizer.set_template(_template_in(template))
        if not tokenizer.has_template:
            raise ConfigError(f"{path} has no chat template: copy chat_template.jinja from the original model")
        try:
            config = AutoConfig.from_pretrained(path, local_files_only=True)
            images = AutoImageProcessor.from_pretrained(path, local_files_only=True, backend="pil")
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError(
                f"{path} has no image processor: copy preprocessor_config.json from the original model ({error})"
            ) from error
        placeholder = tokenizer.id_of(family.placeholder)
        if placeholder is None or placeholder != config.image_token_id:
            raise ConfigError(
                f"the tokenizer in {path} has {family.placeholder} as {placeholder}, the model as "
                f"{config.image_token_id}: they are not of one model"
            )
        tokenizer.require_size(config.get_text_config().vocab_size)
        return cls(
            family=family, config=config, tokenizer=tokenizer, image_processor=images, blobs=blobs, viewing=viewing
        )

    def save(self, folder: Path) -> None:
        """Write tokenizer, template and image processor beside a saved model."""
        self._tokenizer.save(folder)
        self.images.save_pretrained(folder)

    @property
    def placeholder_id(self) -> int:
        """The token that an image's features replace."""
        found = self._tokenizer.id_of(self.family.placeholder)
        if found is None:
            raise ConfigError(f"the tokenizer has no {self.family.placeholder}")
        return found

    @property
    def end_ids(self) -> frozenset[int]:
        """Ends of sequence and of a chat turn."""
        return self._tokenizer.end_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Every special token, the ends and the placeholder included."""
        return self._tokenizer.special_ids | {self.placeholder_id}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, with no special tokens added; what looks like one is broken by a space."""
        return self._tokenizer.encode(self._broken(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, ends left out."""
        return self._tokenizer.decode(token_ids)

    def picture(self, image: ImageId) -> Image.Image:
        """The screenshot in colours."""
        try:
            with Image.open(io.BytesIO(self._blobs.get(image))) as opened:
                return opened.convert("RGB")
        except UnidentifiedImageError as error:
            raise StoreError(f"the screenshot {image} is damaged: {error}") from error

    def layout(self, image: ImageId) -> Layout:
        """What the image becomes in a prompt."""
        found = self._known.pop(image, None)
        if found is None:
            with Image.open(io.BytesIO(self._blobs.get(image))) as opened:
                width, height = opened.size
            found = self._layouts.of(width, height)
            most = self._viewing.most_tokens
            if most is not None and found.tokens > most:
                raise ConfigError(
                    f"a screenshot of {width} x {height} pixels takes {found.tokens} tokens, more than "
                    f"policy.max_image_tokens = {most}: raise that, or lower the largest size in the "
                    "model's preprocessor_config.json"
                )
        self._known[image] = found
        if len(self._known) > _KEPT_LAYOUTS:
            self._known.popitem(last=False)
        return found

    def frame(self, image: ImageId) -> Frame:
        """The coordinates in which the model points at things in `image`."""
        layout = self.layout(image)
        return Frame(space=self._viewing.space or self.family.space, width=layout.width, height=layout.height)

    def chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of the conversation up to where the model's turn begins, with all placeholders of every image."""
        images = [message.image for message in messages if message.image is not None]
        text = self._expanded(self._rendered(messages), images)
        opening = self._opening()
        ids: list[int] = []
        for index, part in enumerate(_ANSWER.split(text)):  # every second part is the number of an answer
            if index % 2:
                ids += messages[int(part)].ids or ()
            else:
                ids += self._tokenizer.encode(_before_answer(part, opening))
        return ids

    def _rendered(self, messages: Sequence[ChatMessage]) -> str:
        turns = [
            {
                "role": message.role,
                "content": [
                    *([{"type": "image"}] if message.image is not None else []),
                    {"type": "text", "text": self._said(number, message)},
                ],
            }
            for number, message in enumerate(messages)
        ]
        return self._tokenizer.render(turns)

    def _said(self, number: int, message: ChatMessage) -> str:
        return self._broken(message.text) if message.ids is None else f"{_OPENS}{number}{_CLOSES}"

    def _expanded(self, text: str, images: Sequence[ImageId]) -> str:
        first, *rest = text.split(self.family.placeholder)
        if len(rest) != len(images):
            raise ConfigError(
                f"the chat template shows {len(rest)} of the {len(images)} screenshots of a prompt: it is not that of "
                "a vision-language model"
            )
        return first + "".join(self.layout(image).text + part for image, part in zip(images, rest, strict=True))

    def _opening(self) -> str:
        """What the template puts before the model's turn."""
        one = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
        return self._tokenizer.render(one).removeprefix(self._tokenizer.render(one, opened=False))

    def _broken(self, text: str) -> str:
        return self._look_alikes.sub(_with_space, text)


def _with_space(found: re.Match[str]) -> str:
    said = found.group()
    return "" if said in {_OPENS, _CLOSES} else f"{said[0]} {said[1:]}"


def _before_answer(part: str, opening: str) -> str:
    """The text before an answer as it was when the answer was sampled: some templates put a space there later."""
    if part.endswith(opening) or not part.rstrip().endswith(opening.rstrip()):
        return part
    return part.rstrip() + opening[len(opening.rstrip()) :]


def _template_in(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["chat_template"])
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
