"""From screenshots by id to what stands for them in a model: features, each image's computed once, and positions."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from cairn.data.ids import ImageId
from cairn.models.looking import Features
from cairn.models.vision.families import Family
from cairn.models.vision.processing import VisionProcessor

_AT_ONCE = 16  # images, so that memory does not grow with the batch where no gradient is wanted
_KEPT_BYTES = 256 * 2**20  # of processed images


@dataclass(frozen=True, slots=True, kw_only=True)
class _Processed:
    """One image as the vision tower takes it."""

    pixels: Tensor
    attended: Tensor | None = None  # of tiled images: which pixels are not padding

    @property
    def size(self) -> int:
        return self.pixels.numel() * self.pixels.element_size()


class _RotatingModel(Protocol):
    @property
    def get_rope_index(self) -> Callable[..., tuple[Tensor, Tensor]]: ...


class _SeeingModel(Protocol):
    @property
    def model(self) -> _RotatingModel: ...

    def get_image_features(self, **images: object) -> BaseModelOutputWithPooling: ...


class VisionEyes:
    """Implements `Eyes` for the vision-language models of Hugging Face, whose tower, merger and positions it uses."""

    def __init__(self, processor: VisionProcessor) -> None:
        self._processor = processor
        self._processed: OrderedDict[ImageId, _Processed] = OrderedDict()

    @property
    def placeholder_id(self) -> int:
        """The token that features replace."""
        return self._processor.placeholder_id

    @property
    def axes(self) -> int:
        """Of positions: 3 where they turn in time, height and width."""
        return 3 if self._family.rotates_in_space else 1

    @property
    def _family(self) -> Family:
        return self._processor.family

    def tokens(self, image: ImageId) -> int:
        """How many placeholders stand for the image."""
        return self._processor.layout(image).tokens

    def encode(self, model: PreTrainedModel, images: Sequence[ImageId]) -> list[Features]:
        """The features of different images, in order; with a graph where gradients are enabled."""
        found: list[Features] = []
        for first in range(0, len(images), _AT_ONCE):
            found += self._encoded(cast("_SeeingModel", model), images[first : first + _AT_ONCE], model.device)
        return found

    def arguments(self, features: Sequence[Features]) -> Mapping[str, object]:
        """The model's arguments for a pass whose placeholders these features replace, in order."""
        if not features:
            return {}
        states = tuple(each.levels[0] for each in features)
        if self._family is Family.QWEN3_VL:
            deep = [tuple(each.levels[i] for each in features) for i in range(1, len(features[0].levels))]
            found = BaseModelOutputWithDeepstackFeatures(
                pooler_output=cast("torch.FloatTensor", states),
                deepstack_features=cast("list[torch.FloatTensor]", deep),
            )
            return {"mm_encoder_outputs": {"image": found}}
        pooled = torch.cat(states) if self._family.tiled else states
        found = BaseModelOutputWithPooling(pooler_output=cast("torch.FloatTensor", pooled))
        return {"mm_encoder_outputs": {"image": found}}

    def positions(
        self,
        model: PreTrainedModel,
        ids: Int64[Tensor, "B L"],
        mask: Int64[Tensor, "B L"],
        images: Sequence[ImageId],
    ) -> Int64[Tensor, "*A B L"]:
        """Where each token is: along three axes [3, B, L], or one after another [B, L]. 0 under the mask.

        `images` are those of all rows, in the order of their placeholders.
        """
        if not self._family.rotates_in_space:
            return (mask.cumsum(1) - 1).clamp(min=0)
        grids = [self._processor.layout(image).grid for image in images]
        found, _ = cast("_SeeingModel", model).model.get_rope_index(
            ids,
            (ids == self.placeholder_id).int(),
            torch.tensor(grids, device=ids.device) if grids else None,
            attention_mask=mask,
        )
        return found

    def _encoded(self, model: _SeeingModel, images: Sequence[ImageId], device: torch.device) -> list[Features]:
        processed = [self._seen(image) for image in images]
        if self._family.tiled:
            return [_tiles(model, each, device) for each in processed]
        pixels = torch.cat([each.pixels for each in processed]).to(device)
        if not self._family.rotates_in_space:
            out = model.get_image_features(pixel_values=pixels)
            return [Features((states,)) for states in cast("Sequence[Tensor]", out.pooler_output)]
        grid = torch.tensor([self._processor.layout(image).grid for image in images], device=device)
        out = model.get_image_features(pixel_values=pixels, image_grid_thw=grid)
        deep = out.deepstack_features if isinstance(out, BaseModelOutputWithDeepstackFeatures) else None
        sizes = [self.tokens(image) for image in images]
        levels = [cast("Sequence[Tensor]", out.pooler_output), *(_split(level, sizes) for level in deep or ())]
        return [Features(tuple(level[i] for level in levels)) for i in range(len(images))]

    def _seen(self, image: ImageId) -> _Processed:
        found = self._processed.pop(image, None) or self._process(image)
        self._processed[image] = found
        while len(self._processed) > 1 and sum(each.size for each in self._processed.values()) > _KEPT_BYTES:
            self._processed.popitem(last=False)
        return found

    def _process(self, image: ImageId) -> _Processed:
        picture, processor = self._processor.picture(image), self._processor.images
        if self._family is Family.LLAVA:  # a screenshot is squeezed, never cut at its sides
            side = self._processor.layout(image).width
            size = {"height": side, "width": side}
            out = processor(images=[picture], do_resize=True, size=size, do_center_crop=False, return_tensors="np")
        else:
            out = processor(images=[picture], return_tensors="np")
        attended = out.get("pixel_attention_mask")
        return _Processed(
            pixels=torch.from_numpy(np.ascontiguousarray(out["pixel_values"])),
            attended=None if attended is None else torch.from_numpy(np.ascontiguousarray(attended)),
        )


def _tiles(model: _SeeingModel, image: _Processed, device: torch.device) -> Features:
    attended = None if image.attended is None else image.attended.to(device)
    out = model.get_image_features(pixel_values=image.pixels.to(device), pixel_attention_mask=attended)
    return Features((cast("Tensor", out.pooler_output).flatten(0, 1),))


def _split(level: object, sizes: Sequence[int]) -> Sequence[Tensor]:
    return level.split(list(sizes)) if isinstance(level, Tensor) else cast("Sequence[Tensor]", level)
