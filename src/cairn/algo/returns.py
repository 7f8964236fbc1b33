"""Advantages that look at steps, or at a whole batch, rather than at one group. Pure numpy."""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Bool, Float64

_EPSILON = 1e-8
_STD_EPSILON = 1e-6


def whiten(values: Float64[np.ndarray, " N"], mask: Bool[np.ndarray, " N"] | None = None) -> Float64[np.ndarray, " N"]:
    """(x - mean) / sqrt(var + 1e-8) over the masked ones of the whole batch; the others are 0."""
    chosen = values if mask is None else values[mask]
    if not chosen.size:
        return np.zeros_like(values)
    centre, spread = moments(chosen)
    scaled = (values - centre) / spread
    return scaled if mask is None else np.where(mask, scaled, 0.0)


def moments(values: Float64[np.ndarray, " N"]) -> tuple[float, float]:
    """Mean and sqrt(var + 1e-8) of at least one value: what whitening takes off, and divides by."""
    return float(values.mean()), float(np.sqrt(values.var() + _EPSILON))


def discounted(rewards: Float64[np.ndarray, " T"], *, gamma: float) -> Float64[np.ndarray, " T"]:
    """Return at each step: the sum of what follows, times gamma for every step that it is away."""
    found = np.zeros_like(rewards)
    total = 0.0
    for step in range(rewards.shape[0] - 1, -1, -1):
        total = float(rewards[step]) + gamma * total
        found[step] = total
    return found


def generalised_advantage(
    rewards: Float64[np.ndarray, " T"],
    values: Float64[np.ndarray, " T"],
    trained: Bool[np.ndarray, " T"],
    *,
    gamma: float,
    lam: float,
) -> Float64[np.ndarray, " T"]:
    """GAE (arXiv:1506.02438) over the tokens that the policy sampled; what it was shown is passed over unchanged."""
    found = np.zeros_like(rewards)
    following, advantage = 0.0, 0.0
    for step in range(rewards.shape[0] - 1, -1, -1):
        if not trained[step]:
            continue
        delta = float(rewards[step]) + gamma * following - float(values[step])
        advantage = delta + gamma * lam * advantage
        found[step] = advantage
        following = float(values[step])
    return found


def with_outcome(costs: Float64[np.ndarray, " T"], reward: float) -> Float64[np.ndarray, " T"]:
    """Rewards of T tokens: minus what each of them cost (a KL), and the outcome with the last one."""
    rewards = -costs
    rewards[-1:] += reward
    return rewards


def against_greedy(
    rewards: Float64[np.ndarray, " T"], *, greedy: float, gamma: float = 1.0
) -> Float64[np.ndarray, " T"]:
    """The return at each token minus the reward of the greedy answer (ReMax, arXiv:2310.10505)."""
    return discounted(rewards, gamma=gamma) - greedy


def group_in_group(
    rewards: Float64[np.ndarray, " G"],
    returns: Sequence[Float64[np.ndarray, " _"]],
    anchors: Sequence[Sequence[Hashable]],
    *,
    weight: float = 1.0,
    scaled: bool = False,
    by_step: bool = False,
) -> list[Float64[np.ndarray, " _"]]:
    """GiGPO (arXiv:2505.10978): each step against the group's episodes, plus `weight` x against steps at its state.

    `rewards` are those of one group's episodes, `returns` discounted returns by episode and step; `anchors` say where a
    step was taken. A state that was met once adds nothing. `scaled` divides by standard deviations; `by_step` counts an
    episode once for every step of it in the episodes' mean, as the released code does.
    """
    counted = np.repeat(rewards, [own.shape[0] for own in returns]) if by_step else rewards
    centre, spread = float(counted.mean()), _spread(counted, scaled=scaled)
    at: dict[Hashable, list[float]] = {}
    for own, places in zip(returns, anchors, strict=True):
        for value, place in zip(own, places, strict=True):
            at.setdefault(place, []).append(float(value))
    found: list[Float64[np.ndarray, " _"]] = []
    for reward, own, places in zip(rewards, returns, anchors, strict=True):
        step = np.array([_among(float(v), at[p], scaled=scaled) for v, p in zip(own, places, strict=True)], np.float64)
        found.append((float(reward) - centre) / spread + weight * step)
    return found


def _among(value: float, others: Sequence[float], *, scaled: bool) -> float:
    if len(others) < 2:
        return 0.0
    known = np.array(others)
    return (value - float(known.mean())) / _spread(known, scaled=scaled)


def _spread(values: Float64[np.ndarray, " N"], *, scaled: bool) -> float:
    return float(values.std(ddof=1)) + _STD_EPSILON if scaled and values.shape[0] > 1 else 1.0
