"""How a policy sees images: what it asks of a model's eyes, and features that several passes share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import PreTrainedModel

from cairn.data.ids import ImageId
from cairn.errors import InvariantError


@dataclass(frozen=True, slots=True)
class Features:
    """What one image is to the model: the states that replace its placeholders, then those added in deeper layers."""

    levels: tuple[Float[Tensor, "N D"], ...]


class Eyes(Protocol):
    """What belongs to seeing, beside the model's weights. Holds no weights, so that copies of a policy can share it."""

    @property
    def placeholder_id(self) -> int:
        """The token that an image's features replace."""
        ...

    @property
    def axes(self) -> int:
        """Of positions: 1, or 3 where tokens have a place in time, height and width."""
        ...

    def tokens(self, image: ImageId) -> int:
        """How many placeholders stand for the image."""
        ...

    def encode(self, model: PreTrainedModel, images: Sequence[ImageId]) -> Sequence[Features]:
        """The features of different images, in order; with a graph where gradients are enabled."""
        ...

    def arguments(self, features: Sequence[Features]) -> Mapping[str, object]:
        """The model's arguments for a pass whose placeholders these features replace, in order."""
        ...

    def positions(
        self,
        model: PreTrainedModel,
        ids: Int64[Tensor, "B L"],
        mask: Int64[Tensor, "B L"],
        images: Sequence[ImageId],
    ) -> Int64[Tensor, "*A B L"]:
        """Where each token is; `images` are those of all rows, in the order of their placeholders."""
        ...


class Looking:
    """Images looked at once for several passes, each with a backward pass of its own.

    Passes get leaves, whose gradients add up; `backward` hands the sums to the graph behind.
    """

    def __init__(self, seen: Sequence[Features], images: Sequence[ImageId]) -> None:
        self._seen = [level for features in seen for level in features.levels]
        graph = torch.is_grad_enabled()
        self.features = {
            image: Features(
                tuple(level.detach().requires_grad_(graph and level.requires_grad) for level in features.levels)
            )
            for image, features in zip(images, seen, strict=True)
        }

    def backward(self) -> None:
        """Add the gradients of all passes to the weights of the eyes; nothing where there were none."""
        leaves = [level for features in self.features.values() for level in features.levels]
        pairs = [
            (level, leaf.grad)
            for level, leaf in zip(self._seen, leaves, strict=True)
            if leaf.grad is not None and level.requires_grad
        ]
        if pairs:
            torch.autograd.backward([level for level, _ in pairs], [gradient for _, gradient in pairs])


def check_placeholders(eyes: Eyes, ids: Int64[Tensor, "B L"], images: Sequence[Sequence[ImageId]]) -> None:
    """Raise an `InvariantError` where a row has more or fewer placeholders than its images have features."""
    found = (ids == eyes.placeholder_id).sum(1).tolist()
    for row, (count, shown) in enumerate(zip(found, images, strict=True)):
        wanted = sum(eyes.tokens(image) for image in shown)
        if count != wanted:
            raise InvariantError(
                f"row {row} of a pass has {count} image placeholders, and its {len(shown)} images take {wanted}"
            )
