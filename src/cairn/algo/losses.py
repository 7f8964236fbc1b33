"""What each token costs. Pure torch: no collectives, no I/O, no configuration.

Credits arrive merged: `positive` and `negative` are sums of weight x advantage over every trajectory that holds the
token in the same context, with all denominators inside. Each cost below is positively homogeneous in the advantage of
one sign, so the merged cost equals the sum of the single ones, and a loss is the plain sum of its tokens' costs.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_MAX_LOG_RATIO = 20.0
_MAX_SEQUENCE_LOG_RATIO = 10.0


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
    ratio = _ratio(logprobs, behaviour)
    return _clipped(ratio, credit, limits=(1.0 - clip_low, 1.0 + clip_high), dual_clip=dual_clip)


def sequence_clipped(
    logprobs: Float[Tensor, " T"],
    behaviour: Float[Tensor, " T"],
    credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]],
    sequence: Int[Tensor, " T"],
    *,
    clip_low: float,
    clip_high: float,
) -> Float[Tensor, " T"]:
    """GSPO (arXiv:2507.18071): one ratio for a sequence, the geometric mean of its tokens', and each token's gradient.

    `sequence` numbers the sequence of each token from 0. Published clips: 3e-4 and 4e-4.
    """
    log_ratio = logprobs.detach() - behaviour
    size = int(sequence.max()) + 1
    sums = torch.zeros(size, dtype=log_ratio.dtype, device=log_ratio.device).index_add_(0, sequence, log_ratio)
    counts = torch.bincount(sequence, minlength=size).to(log_ratio.dtype)
    mean = (sums / counts.clamp(min=1.0)).clamp(-_MAX_SEQUENCE_LOG_RATIO, _MAX_SEQUENCE_LOG_RATIO)
    ratio = mean.exp()[sequence] * (logprobs - logprobs.detach()).exp()
    return _clipped(ratio, credit, limits=(1.0 - clip_low, 1.0 + clip_high), dual_clip=None)


def clipped_weights(
    logprobs: Float[Tensor, " T"],
    behaviour: Float[Tensor, " T"],
    credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]],
    *,
    cap: float,
    floor: float = 0.0,
) -> Float[Tensor, " T"]:
    """CISPO (arXiv:2506.13585): importance weights are clipped to [floor, cap], and no token loses its gradient."""
    weight = _ratio(logprobs, behaviour).detach().clamp(floor, cap)
    return -weight * (credit[0] + credit[1]) * logprobs


def score_function(
    logprobs: Float[Tensor, " T"], credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]]
) -> Float[Tensor, " T"]:
    """REINFORCE: -A log-prob, without a ratio."""
    return -(credit[0] + credit[1]) * logprobs


def soft_gate(
    logprobs: Float[Tensor, " T"],
    behaviour: Float[Tensor, " T"],
    credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]],
    *,
    temperature: float = 1.0,
    negative_temperature: float = 1.05,
) -> Float[Tensor, " T"]:
    """SAPO (arXiv:2511.20347): a sigmoid of the ratio in place of the clip, 4 / tau sigmoid(tau (r - 1))."""
    ratio = _ratio(logprobs, behaviour)
    gain = torch.sigmoid(temperature * (ratio - 1.0)) * (4.0 / temperature)
    penalty = torch.sigmoid(negative_temperature * (ratio - 1.0)) * (4.0 / negative_temperature)
    return -gain * credit[0] - penalty * credit[1]


def clipped_values(
    values: Float[Tensor, " T"], before: Float[Tensor, " T"], returns: Float[Tensor, " T"], *, clip: float | None
) -> Float[Tensor, " T"]:
    """A critic's cost: half the squared error, or that of the value held within `clip` of `before` where it is larger.

    PPO's value clipping (arXiv:1707.06347, as implemented); published clips: 0.2 and 0.5.
    """
    error = (values - returns).square()
    if clip is not None:
        held = before + (values - before).clamp(-clip, clip)
        error = torch.maximum(error, (held - returns).square())
    return error / 2


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


def _clipped(
    ratio: Float[Tensor, " T"],
    credit: tuple[Float[Tensor, " T"], Float[Tensor, " T"]],
    *,
    limits: tuple[float, float],
    dual_clip: float | None,
) -> Float[Tensor, " T"]:
    positive, negative = credit
    gain = torch.minimum(ratio, ratio.clamp(max=limits[1])) * positive
    penalty = torch.maximum(ratio, ratio.clamp(min=limits[0]))
    if dual_clip is not None:
        penalty = penalty.clamp(max=dual_clip)
    return -gain - penalty * negative


def _ratio(logprobs: Float[Tensor, " T"], behaviour: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    return (logprobs - behaviour).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
