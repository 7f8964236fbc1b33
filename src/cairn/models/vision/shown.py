"""Token trees of sequences with images: an image is shared where it is the same one, at the same place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import PreTrainedModel

from cairn.data.ids import ImageId
from cairn.models.looking import Eyes, Features
from cairn.models.tree import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Sequences, and the images that their placeholders stand for."""

    eyes: Eyes
    sequences: Sequence[Int64[np.ndarray, " L"]]
    images: Sequence[Sequence[ImageId]]

    @property
    def keys(self) -> list[Int64[np.ndarray, " L"]]:
        """The sequences with -1 - n for the placeholders of the n-th different image: equal where all is equal."""
        numbers = {image: n for n, image in enumerate(self._different)}
        return [self._keyed(ids, own, numbers) for ids, own in zip(self.sequences, self.images, strict=True)]

    @property
    def _different(self) -> list[ImageId]:
        return list(dict.fromkeys(image for own in self.images for image in own))

    def _keyed(
        self, ids: Int64[np.ndarray, " L"], images: Sequence[ImageId], numbers: Mapping[ImageId, int]
    ) -> Int64[np.ndarray, " L"]:
        codes = [np.full(self.eyes.tokens(image), -1 - numbers[image]) for image in images]
        keyed = ids.copy()
        if codes:
            keyed[ids == self.eyes.placeholder_id] = np.concatenate(codes)
        return keyed

    def ids(self, rows: Rows) -> Int64[np.ndarray, "R W"]:
        """The rows' keys as the model reads them."""
        return np.where(rows.ids < 0, self.eyes.placeholder_id, rows.ids)

    def positions(self, model: PreTrainedModel, rows: Rows) -> Int64[Tensor, "*A R W"]:
        """Each token's, on the way to it: shared tokens have the same on all ways. 0 at padding."""
        width = max(ids.shape[0] for ids in self.sequences)
        padded, mask = (np.zeros((len(self.sequences), width), np.int64) for _ in range(2))
        for row, ids in enumerate(self.sequences):
            padded[row, : ids.shape[0]], mask[row, : ids.shape[0]] = ids, 1
        shown = [image for own in self.images for image in own]
        along = self.eyes.positions(model, torch.from_numpy(padded), torch.from_numpy(mask), shown)
        found = torch.zeros(*along.shape[:-2], rows.ids.size, dtype=torch.long)
        for row, path in enumerate(rows.paths):
            found[..., torch.from_numpy(path)] = along[..., row, : path.shape[0]]
        return found.unflatten(-1, rows.ids.shape)

    def features(self, rows: Rows, seen: Mapping[ImageId, Features]) -> list[Features]:
        """What replaces the rows' placeholders, in their order: an image once for each place that it is at."""
        different = self._different
        codes = rows.ids[rows.ids < 0]
        found: list[Features] = []
        at = 0
        while at < codes.shape[0]:
            image = different[-1 - int(codes[at])]
            found.append(seen[image])
            at += self.eyes.tokens(image)
        return found
