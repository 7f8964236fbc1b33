"""A vision-language model of a real class with random weights, and a batch of answers to one screenshot."""

from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from transformers import AutoConfig

from cairn.bench.work import Work, noise, random_ids, work_on
from cairn.models.loading import load_vision_model
from cairn.models.policy import Policy
from cairn.models.vision.eyes import VisionEyes
from cairn.models.vision.families import Family
from cairn.models.vision.processing import VisionProcessor
from cairn.models.vision.tiny import TinySize, make_tiny
from cairn.ports import BlobStore
from cairn.testing.memory import MemoryBlobs

SCREENSHOT = "one screenshot"
"""The name of its batch."""

_FAMILY = Family.QWEN2_5_VL


class _TextConfig(Protocol):
    vocab_size: int


class _Config(Protocol):
    """What is used of the model's configuration."""

    vision_start_token_id: int
    vision_end_token_id: int

    def get_text_config(self) -> _TextConfig: ...


class Seeing:
    """A model's directory, and all that is needed to have policies and batches of it."""

    def __init__(self, folder: Path, size: TinySize) -> None:
        """Write the model to `folder`."""
        make_tiny(_FAMILY, folder, size=size)
        self._folder = folder
        self._size = size
        self._blobs: BlobStore = MemoryBlobs()
        config = AutoConfig.from_pretrained(folder)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - partly annotated
        self._config = cast("_Config", config)
        self._processor = VisionProcessor.load(folder, family=_FAMILY, blobs=self._blobs)

    @property
    def eyes(self) -> VisionEyes:
        """Of every policy."""
        return VisionEyes(self._processor)

    def policy(self, *, sharing: bool, device: torch.device, autocast: torch.dtype | None) -> Policy:
        """With the weights that were written."""
        attention = "sdpa" if device.type == "cpu" else None
        model = load_vision_model(self._folder, attention=attention)
        torch.nn.Module.to(model, device)
        return Policy(model=model, eyes=self.eyes, autocast=autocast, sharing=sharing)

    def work(self, *, answers: int, answer_tokens: int, prompt_tokens: int) -> Work:
        """Answers to one prompt with one screenshot."""
        rng = np.random.default_rng(2)
        image = noise(self._blobs, self._size.image)
        shown = [self.eyes.placeholder_id] * self.eyes.tokens(image)
        last_id = self._config.get_text_config().vocab_size
        said = random_ids(rng, max(1, prompt_tokens - len(shown) - 2), last_id=last_id)
        prompt = [self._config.vision_start_token_id, *shown, self._config.vision_end_token_id, *said]
        return work_on(
            SCREENSHOT,
            [prompt] * answers,
            rng,
            answer_tokens=answer_tokens,
            last_id=last_id,
            images=(image,),
        )
