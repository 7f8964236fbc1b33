"""From encoded screenshots to what the pixel policy sees."""

import dataclasses
import io
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor
from transformers import BatchFeature, ImageProcessingMixin
from transformers.processing_utils import ImagesKwargs

from cairn.data.ids import ImageId
from cairn.data.pixel_vocabulary import Crop
from cairn.ports import BlobStore


class PixelImageProcessor(ImageProcessingMixin):
    """Cuts screenshots to the part that the policy sees; what a smaller screen lacks is black.

    Saved and loaded beside the model (`save_pretrained`, `from_pretrained`).
    """

    model_input_names = ("pixel_values",)
    valid_kwargs = ImagesKwargs

    def __init__(self, *, crop: Crop | Mapping[str, int] | None = None, **others: object) -> None:
        """`crop` is a mapping where it comes from a saved file."""
        super().__init__(**others)
        whole = crop if isinstance(crop, Crop) else Crop(**(crop or {}))
        self.crop = dataclasses.asdict(whole)

    def __call__(self, images: Sequence[Image.Image]) -> BatchFeature:
        """`pixel_values`: uint8 [B, 3, H, W]."""
        return BatchFeature({"pixel_values": torch.from_numpy(np.stack([self.cut(image) for image in images]))})

    def cut(self, image: Image.Image) -> UInt8[np.ndarray, "3 H W"]:
        """What the policy sees of one screenshot."""
        crop = Crop(**self.crop)
        box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        return np.ascontiguousarray(np.asarray(image.convert("RGB").crop(box)).transpose(2, 0, 1))


class PixelFeatures:
    """The model's image arguments for stored screenshots; keeps the last `keep` decoded ones."""

    def __init__(self, *, blobs: BlobStore, processor: PixelImageProcessor, keep: int = 4096) -> None:
        self._blobs = blobs
        self._processor = processor
        self._keep = keep
        self._decoded: OrderedDict[ImageId, UInt8[np.ndarray, "3 H W"]] = OrderedDict()

    def __call__(self, images: Sequence[ImageId]) -> Mapping[str, Tensor]:
        """`pixel_values`: uint8 [B, 3, H, W], one row for each id."""
        return {"pixel_values": torch.from_numpy(np.stack([self._seen(image) for image in images]))}

    def _seen(self, image: ImageId) -> UInt8[np.ndarray, "3 H W"]:
        found = self._decoded.pop(image, None)
        if found is None:
            found = self._processor.cut(Image.open(io.BytesIO(self._blobs.get(image))))
        self._decoded[image] = found
        if len(self._decoded) > self._keep:
            self._decoded.popitem(last=False)
        return found
