"""The policy can see: on a probe, another screenshot changes what it would say."""

import io

import numpy as np
import torch
from PIL import Image

from cairn.data.ids import ImageId
from cairn.data.observation import Observation
from cairn.data.trajectory import Prompt
from cairn.errors import SetupError
from cairn.models.policy import Policy
from cairn.ports import BlobStore, Codec

_SCREEN = (160, 210)
_LEAST = 1e-6  # of the largest change of a log-probability, in nats: rounding alone changes none


def require_sight(policy: Policy, *, codec: Codec, blobs: BlobStore) -> None:
    """Raise a `SetupError` where two different screenshots lead to the same log-probabilities of the first token."""
    prompts = [_probe(codec, blobs, seed) for seed in (0, 1)]
    with torch.no_grad():
        first, second = policy.prefill(prompts).logits.log_softmax(-1).nan_to_num(neginf=0.0)
    changed = float((first - second).abs().max())
    if not changed > _LEAST:
        raise SetupError(
            "the policy does not see: another screenshot changes none of its log-probabilities; its vision weights are "
            "missing, or its prompts show no image"
        )


def _probe(codec: Codec, blobs: BlobStore, seed: int) -> Prompt:
    seen = Observation(image=_noise(blobs, seed), elements=(), accessibility="", url="", digest="")
    return codec.prompt("look", (), seen)


def _noise(blobs: BlobStore, seed: int) -> ImageId:
    pixels = np.random.Generator(np.random.Philox(seed)).integers(0, 256, (_SCREEN[1], _SCREEN[0], 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return blobs.put(data.getvalue())
