"""From samples to what one forward pass takes: a prompt, an answer, and what each answer token is worth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from cairn.data.sample import CreditedSample, Sample
from cairn.data.trajectory import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A sample, cut where the policy began to answer and ended with the last token it sampled."""

    index: int  # in the batch; below 0 where it is computed for company alone
    prompt: Prompt
    answer: Int32[np.ndarray, " A"]  # sampled tokens, and context between them where turns were merged
    sampled: Int64[np.ndarray, " T"]  # where in `answer` the sampled tokens are
    logprobs: Float32[np.ndarray, " T"]
    versions: Int32[np.ndarray, " T"]
    positive: Float32[np.ndarray, " T"]
    negative: Float32[np.ndarray, " T"]
    weights: Float32[np.ndarray, " T"]
    values: Float32[np.ndarray, " T"]  # of a critic before the update; 0 without one
    returns: Float32[np.ndarray, " T"]

    @property
    def idle(self) -> bool:
        """Whether it counts for nothing."""
        return self.index < 0

    def as_idle(self) -> "Example":
        """The same, worth nothing: for a rank that must compute along with others and has nothing left to do."""
        none = np.zeros_like(self.weights)
        return replace(self, index=-1 - self.index, positive=none, negative=none, weights=none)


def example(index: int, credited: CreditedSample) -> Example:
    """Cut one sample of a batch. All its images are the prompt's: the guard has checked it."""
    sample = credited.sample
    at = np.flatnonzero(sample.loss_mask)
    first, end = int(at[0]), int(at[-1]) + 1
    none = np.zeros(at.shape, np.float32)
    return Example(
        index=index,
        prompt=Prompt(token_ids=sample.token_ids[:first], images=sample.images),
        answer=sample.token_ids[first:end],
        sampled=at - first,
        logprobs=sample.logprobs[at],
        versions=sample.versions[at],
        positive=credited.positive[at],
        negative=credited.negative[at],
        weights=credited.weights[at],
        values=none if credited.critic is None else credited.critic.values[at],
        returns=none if credited.critic is None else credited.critic.returns[at],
    )


def uncredited(sample: Sample, *, weight: float) -> CreditedSample:
    """A sample that is only measured: every sampled token weighs the same, and is worth nothing yet."""
    none = np.zeros(sample.token_ids.shape, np.float32)
    weights = np.where(sample.loss_mask, np.float32(weight), np.float32(0))
    return CreditedSample(sample=sample, positive=none, negative=none, weights=weights)


def by_example(examples: Sequence[Example], values: Tensor) -> Iterator[tuple[Example, Tensor]]:
    """Each example with its own of `values` [T], those of the sampled tokens of all of them, in order."""
    return zip(examples, values.split([e.sampled.shape[0] for e in examples]), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The sampled tokens of some examples, one after another, as the losses take them."""

    behaviour: Float32[Tensor, " T"]
    positive: Float32[Tensor, " T"]
    negative: Float32[Tensor, " T"]
    weights: Float32[Tensor, " T"]
    sequence: Int64[Tensor, " T"]  # which of the examples each token is of

    @property
    def credit(self) -> tuple[Tensor, Tensor]:
        """Positive and negative credits."""
        return self.positive, self.negative


def tokens(examples: Sequence[Example], device: torch.device) -> Tokens:
    """Join the tokens of `examples`, in order."""

    def joined(arrays: Sequence[Float32[np.ndarray, " T"]]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    lengths = [e.sampled.shape[0] for e in examples]
    return Tokens(
        behaviour=joined([e.logprobs for e in examples]),
        positive=joined([e.positive for e in examples]),
        negative=joined([e.negative for e in examples]),
        weights=joined([e.weights for e in examples]),
        sequence=torch.from_numpy(np.repeat(np.arange(len(examples)), lengths)).to(device),
    )
