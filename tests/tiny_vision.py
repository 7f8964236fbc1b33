"""Tiny vision-language models, made once for all tests of a process, and prompts with screenshots for them."""

import atexit
import io
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.utils.logging import disable_progress_bar

from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.vision import History, VisionCodec
from cairn.data.action import Action
from cairn.data.ids import ImageId
from cairn.data.observation import Observation
from cairn.data.trajectory import Completion, Turn
from cairn.models.loading import load_vision_model
from cairn.models.policy import Policy
from cairn.models.vision.eyes import VisionEyes
from cairn.models.vision.families import Family
from cairn.models.vision.processing import Viewing, VisionProcessor
from cairn.models.vision.tiny import TinySize, make_tiny
from cairn.testing.memory import MemoryBlobs

torch.set_num_threads(1)
disable_progress_bar()

TESTED = (Family.QWEN2_5_VL, Family.QWEN3_VL, Family.IDEFICS3, Family.LLAVA)
SIZE = TinySize(image=168)  # more than one window of Qwen2.5-VL's attention
BLOBS = MemoryBlobs()
SCREEN = (160, 210)


def looked_at(eyes: VisionEyes, monkeypatch: pytest.MonkeyPatch) -> list[ImageId]:
    """What these eyes are shown from now on, in order."""
    looked: list[ImageId] = []
    really = eyes.encode

    def encode(model, images):
        looked.extend(images)
        return really(model, images)

    monkeypatch.setattr(eyes, "encode", encode)
    return looked


@cache
def directory(family: Family) -> Path:
    root = mkdtemp(prefix="cairn-tiny-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    path = Path(root) / family
    make_tiny(family, path, size=SIZE)
    return path


def picture(seed: int, *, size: tuple[int, int] = SCREEN) -> ImageId:
    """A screenshot of coloured rectangles."""
    random = np.random.default_rng(seed)
    pixels = np.full((size[1], size[0], 3), random.integers(0, 256, 3), np.uint8)
    for _ in range(6):
        x, y = random.integers(0, max(1, size[0] - 20)), random.integers(0, max(1, size[1] - 20))
        pixels[y : y + random.integers(5, 60), x : x + random.integers(5, 60)] = random.integers(0, 256, 3)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return BLOBS.put(data.getvalue())


def processor(family: Family, *, viewing: Viewing | None = None) -> VisionProcessor:
    return VisionProcessor.load(directory(family), family=family, blobs=BLOBS, viewing=viewing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """A policy with all that belongs to it."""

    policy: Policy
    codec: VisionCodec
    eyes: VisionEyes
    processor: VisionProcessor


def mind(
    family: Family,
    *,
    dialect: Dialect = Dialect.UI_TARS,
    history: History | None = None,
    autocast: torch.dtype | None = None,
) -> Mind:
    own = processor(family)
    codec = VisionCodec(processor=own, dialect=dialect, history=history or History(images=3))
    eyes = VisionEyes(own)
    policy = Policy(
        model=load_vision_model(directory(family)), forbidden_ids=codec.forbidden_ids, eyes=eyes, autocast=autocast
    )
    return Mind(policy=policy, codec=codec, eyes=eyes, processor=own)


def screen(seed: int, *, size: tuple[int, int] = SCREEN, message: str = "") -> Observation:
    return Observation(
        image=picture(seed, size=size), elements=(), accessibility="", url="", digest=str(seed), message=message
    )


def answered(mind: Mind, turns: list[Turn], seen: Observation, action: Action, *, goal: str = "press ok") -> Turn:
    """A turn in which the policy said `action`."""
    (ids, *_) = mind.codec.answers(goal, action, seen)
    return Turn(
        observation=seen,
        prompt=mind.codec.prompt(goal, turns, seen),
        completion=Completion(
            token_ids=ids,
            logprobs=np.zeros(len(ids), np.float32),
            versions=np.zeros(len(ids), np.int32),
            truncated=False,
        ),
        action=action,
    )
