"""From hidden states to what a loss needs of each token, without all tokens' distributions in memory at once."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cairn.algo import losses

_CHUNK_LOGITS = 1 << 24
"""Logits that are in memory at once: 64 MB of them in float32."""

Head = Callable[[Float[Tensor, "C H"]], Float32[Tensor, "C V"]]
"""From hidden states to logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of T chosen tokens."""

    chosen: Float32[Tensor, " T"]  # their log-probabilities
    entropy: Float32[Tensor, " T"]  # of the distributions that they were chosen from, nats
    computed: int  # tokens that went through the model, padding not counted


def of_logits(
    logits: Float32[Tensor, "T V"], ids: Int64[Tensor, " T"], *, temperature: float
) -> tuple[Float32[Tensor, " T"], Float32[Tensor, " T"]]:
    """Log-probabilities of `ids`, and entropies, of the tempered distributions."""
    log_probs = torch.log_softmax(logits / temperature, -1)
    return log_probs.gather(-1, ids[:, None]).squeeze(-1), losses.entropy(log_probs)


def of_hidden(
    hidden: Float[Tensor, "T H"], ids: Int64[Tensor, " T"], *, head: Head, vocabulary: int, temperature: float
) -> tuple[Float32[Tensor, " T"], Float32[Tensor, " T"]]:
    """The same from hidden states, some tokens at a time; the backward pass computes their logits again."""
    size = max(1, _CHUNK_LOGITS // vocabulary)
    if ids.shape[0] <= size:
        return of_logits(head(hidden), ids, temperature=temperature)

    def part(states: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return of_logits(head(states), wanted, temperature=temperature)

    found = [
        checkpoint(part, states, wanted, use_reentrant=False, preserve_rng_state=False)
        for states, wanted in zip(hidden.split(size), ids.split(size), strict=True)
    ]
    return torch.cat([chosen for chosen, _ in found]), torch.cat([entropy for _, entropy in found])
