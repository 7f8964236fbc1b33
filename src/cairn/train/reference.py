"""The policy that a KL term or a preference holds on to: as the trained one was once, or following it slowly."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int32, Int64
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.models.adapters import adapter
from cairn.models.policy import Policy
from cairn.models.saving import load_weights, save_model
from cairn.models.scoring import Scores

_WEIGHTS = "adapter.safetensors"
"""Of a reference that is an adapter: the weights beneath it are the policy's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """How a reference moves; by default it stays."""

    kept: float | None = None  # share of its weights that it keeps in an update; the rest are the policy's
    every: int | None = None  # updates, after which it becomes the policy


class Reference:
    """A copy of a policy as it is now. Where that has adapters, only these are copied: the two share all other weights.

    With adapters it looks at images with the policy's eyes, which are frozen.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._adapter = {name: weight.detach().clone() for name, weight in adapter(policy.model).items()}
        self._copy = policy if self._adapter else policy.copy()
        self.age = 0
        """Updates since it was the policy."""

    @property
    def model(self) -> PreTrainedModel:
        """Whose weights it has."""
        return self._copy.model

    def looking(self, images: Sequence[ImageId]) -> AbstractContextManager[None]:
        """As of a policy."""
        return nullcontext() if self._adapter else self._copy.looking(images)

    @torch.no_grad()
    def scores(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Int32[np.ndarray, " A"]],
        sampled: Sequence[Int64[np.ndarray, " T"]],
        *,
        temperature: float,
    ) -> Scores:
        """As of a policy, without a gradient."""
        with self._put_on():
            return self._copy.scores(prompts, answers, sampled, temperature=temperature)

    @torch.no_grad()
    def follow(self, following: Following) -> None:
        """To be called after each update of the policy."""
        self.age += 1
        if following.kept is not None:
            for own, theirs in self._pairs():
                own.lerp_(theirs, 1 - following.kept)
        if following.every is not None and self.age >= following.every:
            for own, theirs in self._pairs():
                own.copy_(theirs)
            self.age = 0

    def save(self, folder: Path) -> None:
        """Write it to a new directory."""
        if self._adapter:
            folder.mkdir()
            save_file({name: weight.contiguous() for name, weight in self._adapter.items()}, folder / _WEIGHTS)
        else:
            save_model(self._copy.model, folder)

    @torch.no_grad()
    def load(self, folder: Path, *, age: int) -> None:
        """Become what `save` wrote."""
        self.age = age
        if not self._adapter:
            load_weights(folder, self._copy.model)
            return
        saved: Mapping[str, Tensor] = load_file(folder / _WEIGHTS)
        for name, weight in self._adapter.items():
            weight.copy_(saved[name])

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Its weights, and the policy's."""
        if self._adapter:
            trained = adapter(self._policy.model)
            yield from ((weight, trained[name]) for name, weight in self._adapter.items())
        else:
            yield from zip(self._copy.model.parameters(), self._policy.model.parameters(), strict=True)

    @contextmanager
    def _put_on(self) -> Generator[None]:
        """Within, the policy's adapters are those of the reference.

        Storages are exchanged, not written: graphs under way find their own again before they go backwards.
        """
        trained = adapter(self._policy.model) if self._adapter else {}
        mine = {name: weight.data for name, weight in trained.items()}
        try:
            for name, weight in trained.items():
                weight.data = self._adapter[name]
            yield
        finally:
            for name, weight in trained.items():
                weight.data = mine[name]
