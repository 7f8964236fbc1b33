"""What each token costs. Pure torch: no collectives, no I/O, no configuration.

Credits arrive merged: `positive` and `negative` are sums of weight x advantage over every trajectory that holds the
token in the same context, with all denominators inside. Each cost below is positively homogeneous in the advantage of
one sign, so the merged cost equals the sum of the single ones, and a loss is the plain sum of its tokens' costs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_MAX_LOG_RATIO = 20.0


def clipped_surrogate(
    logprobs: Float[Tensor, " T"],
    behaviour: Float[Tensor, " T"],
    credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Float[Tensor, " T"]:
    """PPO's clipped objective, negated (arXiv:1707.06347); `clip_high > clip_low` is clip-higher (arXiv:2503.14476).

    `credit` is (positive >= 0, negative <= 0). With the ratio r = exp(logprobs - behaviour) a token costs
    -min(r P, clip(r) P) - min(r N, clip(r) N). `dual_clip` c > 1 limits the second cost to -c N (arXiv:1912.09729).
    """
    positive, negative = credit
    ratio = _ratio(logprobs, behaviour)
    gain = torch.minimum(ratio, ratio.clamp(max=1.0 + clip_high)) * positive
    penalty = torch.maximum(ratio, ratio.clamp(min=1.0 - clip_low))
    if dual_clip is not None:
        penalty = penalty.clamp(max=dual_clip)
    return -gain - penalty * negative


def at_clip(
    logprobs: Float[Tensor, " T"],
    behaviour: Float[Tensor, " T"],
    credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]],
    *,
    limits: tuple[float, float],
) -> Bool[Tensor, " T"]:
    """Tokens of which the clip takes some gradient away; `limits` are 1 - clip_low and 1 + clip_high."""
    positive, negative = credit
    ratio = _ratio(logprobs, behaviour)
    return ((ratio > limits[1]) & (positive > 0)) | ((ratio < limits[0]) & (negative < 0))


def likelihood(logprobs: Float[Tensor, " T"], weights: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """Weighted negative log-likelihood (behaviour cloning); a token of weight 0 costs 0 however unlikely it is."""
    return torch.where(weights > 0, -weights * logprobs, torch.zeros_like(logprobs))


def entropy(log_probs: Float[Tensor, "*T V"]) -> Float[Tensor, "*T"]:
    """Entropy of each row of log-probabilities, nats; an impossible token (-inf) adds nothing, nor to the gradient."""
    possible = log_probs > -torch.inf
    safe = torch.where(possible, log_probs, torch.zeros_like(log_probs))
    return -torch.where(possible, safe.exp() * safe, torch.zeros_like(safe)).sum(-1)


def _ratio(logprobs: Float[Tensor, " T"], behaviour: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    return (logprobs - behaviour).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
