"""A critic: a model of its own that says what is still to come before each token, and learns from what came."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from cairn.algo import losses
from cairn.data.sample import Batch
from cairn.errors import InvariantError
from cairn.models.policy import Policy
from cairn.train.examples import Example, by_example
from cairn.train.optimisation import Optimisation, Optimiser
from cairn.train.parts import own_parts
from cairn.train.ranks import Alone


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSettings:
    """How a critic learns."""

    optimisation: Optimisation = field(default_factory=lambda: Optimisation(learning_rate=1e-4))
    clip: float | None = 0.2  # how far a value may move before its error counts in full
    alone: int = 0  # optimiser steps at first in which the policy stays as it is


class Critic:
    """Begun as a copy of the policy, whose last layer is replaced; its optimiser is its own."""

    def __init__(self, *, policy: Policy, settings: CriticSettings, max_tokens: int) -> None:
        """Copy `policy` as it is now. Values are 0 at first."""
        self.policy = policy.copy().become_critic()
        self.optimiser = Optimiser(model=self.policy.model, optimisation=settings.optimisation)
        self._settings = settings
        self._max_tokens = max_tokens

    @property
    def alone(self) -> bool:
        """Whether the critic still learns without the policy."""
        return self.optimiser.steps < self._settings.alone

    @torch.no_grad()
    def values(self, examples: Sequence[Example]) -> dict[int, Float32[np.ndarray, " T"]]:
        """What it says before each sampled token, by the examples' indices."""
        found: dict[int, Float32[np.ndarray, " T"]] = {}
        for part in self._parts(examples):
            found |= {one.index: own.numpy() for one, own in by_example(part, self._values(part).cpu())}
        return found

    def learn(self, examples: Sequence[Example], *, scale: float) -> float:
        """Gather the gradient towards the examples' returns, times `scale`, for `optimiser.step`; the cost."""
        total = 0.0
        for part in self._parts(examples):
            before, returns, weights = (
                torch.from_numpy(np.concatenate(own)).to(self.policy.device)
                for own in ([e.values for e in part], [e.returns for e in part], [e.weights for e in part])
            )
            missed = losses.clipped_values(self._values(part), before, returns, clip=self._settings.clip)
            cost = (weights * missed).sum()
            (cost * scale).backward()
            total += float(cost.detach())
        if not isfinite(total):
            raise InvariantError(f"the critic's loss is {total}: a value or a return is not finite")
        return total

    def _values(self, part: Sequence[Example]) -> Tensor:
        return self.policy.values([e.prompt for e in part], [e.answer for e in part], [e.sampled for e in part])

    def _parts(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        with self.policy.looking([image for e in examples for image in e.prompt.images]):
            yield from own_parts(self.policy, examples, Alone(), max_tokens=self._max_tokens)


def explained(batch: Batch) -> float:
    """Share of the returns' variance that the critic knew before; 0 where it is not told, or nothing varies."""
    lessons = [(one.critic, one.sample.loss_mask) for one in batch.samples if one.critic is not None]
    if not lessons:
        return 0.0
    returns = np.concatenate([own.returns[mask] for own, mask in lessons]).astype(np.float64)
    values = np.concatenate([own.values[mask] for own, mask in lessons]).astype(np.float64)
    spread = float(returns.var())
    return 1.0 - float((returns - values).var()) / spread if spread > 1e-12 else 0.0
