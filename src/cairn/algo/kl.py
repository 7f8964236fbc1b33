"""Estimators of KL(policy || reference) from sampled tokens. Pure torch.

With d = log-prob of the policy minus that of the reference: as values k1 and k3 are unbiased and k2 is biased but of
low variance (J. Schulman, "Approximating KL divergence", 2020). As losses, on samples of the policy: the gradient of k2
is that of the reverse KL, that of k1 is zero in expectation, that of k3 is that of the forward KL.
"""

import torch
from jaxtyping import Float
from torch import Tensor

_MAX_LOG_RATIO = 20.0
_MAX_K3 = 10.0


def k1(logprobs: Float[Tensor, " T"], reference: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """d: unbiased, of either sign."""
    return _log_ratio(logprobs, reference)


def k2(logprobs: Float[Tensor, " T"], reference: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """d^2 / 2: biased, never negative."""
    return _log_ratio(logprobs, reference).square() / 2


def k3(logprobs: Float[Tensor, " T"], reference: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """exp(-d) + d - 1: unbiased, never negative; limited to 10 against a token that one policy all but excludes."""
    d = _log_ratio(logprobs, reference)
    return (torch.expm1(-d) + d).clamp(max=_MAX_K3)


def _log_ratio(logprobs: Float[Tensor, " T"], reference: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    return (logprobs - reference).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
