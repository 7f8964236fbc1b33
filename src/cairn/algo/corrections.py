"""Weights for tokens that another policy sampled than the one that the update starts from. Pure torch, detached.

`log_ratio` is the log-probability of the learner at the start of the update minus that of whoever sampled. A truncated
weight keeps a token with less weight; a masked one drops it. Multiply the cost with it, after any clip.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_MAX_LOG_RATIO = 20.0


def token_truncated(log_ratio: Float[Tensor, " T"], *, cap: float) -> Float[Tensor, " T"]:
    """min(r, cap): truncated importance sampling; published caps 1.5 to 5, usually 2."""
    return _exp(log_ratio).clamp(max=cap)


def token_masked(log_ratio: Float[Tensor, " T"], *, low: float, high: float) -> Float[Tensor, " T"]:
    """R inside [low, high], else 0 (IcePop: 0.5 and 5)."""
    ratio = _exp(log_ratio)
    return torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))


def sequence_truncated(
    log_ratio: Float[Tensor, " T"], sequence: Int[Tensor, " T"], *, cap: float
) -> Float[Tensor, " T"]:
    """min(product of r over the sequence, cap), for each of its tokens."""
    return _exp(_sums(log_ratio, sequence))[sequence].clamp(max=cap)


def sequence_masked(
    log_ratio: Float[Tensor, " T"], sequence: Int[Tensor, " T"], *, low: float, high: float
) -> Float[Tensor, " T"]:
    """The product of r over the sequence inside [low, high], else 0, for each of its tokens."""
    product = _exp(_sums(log_ratio, sequence))[sequence]
    return torch.where((product >= low) & (product <= high), product, torch.zeros_like(product))


def geometric_mask(
    log_ratio: Float[Tensor, " T"], sequence: Int[Tensor, " T"], *, low: float = 0.999, high: float = 1.002
) -> Float[Tensor, " T"]:
    """The token's own r where the geometric mean over its sequence is inside [low, high], else 0."""
    counts = torch.bincount(sequence).clamp(min=1).to(log_ratio.dtype)
    mean = _exp(_sums(log_ratio, sequence) / counts)[sequence]
    return torch.where((mean >= low) & (mean <= high), _exp(log_ratio), torch.zeros_like(log_ratio))


def _sums(values: Float[Tensor, " T"], sequence: Int[Tensor, " T"]) -> Float[Tensor, " S"]:
    size = int(sequence.max()) + 1
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add_(0, sequence, values.detach())


def _exp(log_ratio: Float[Tensor, "*T"]) -> Float[Tensor, "*T"]:
    return log_ratio.detach().clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
