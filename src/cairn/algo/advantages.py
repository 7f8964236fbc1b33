"""Advantage estimators over one group of rewards. Pure numpy: no torch, no I/O, no configuration."""

from typing import Literal, assert_never

import numpy as np
from jaxtyping import Float, Float32

_EPSILON = np.float32(1e-6)

Scale = Literal["std", "population", "none"]


def group_relative(rewards: Float32[np.ndarray, " G"], *, scale: Scale = "std") -> Float32[np.ndarray, " G"]:
    """Reward minus the group's mean, in units of `scale`.

    "std": the unbiased standard deviation + 1e-6 (GRPO, arXiv:2402.03300); "population": the population's;
    "none": 1 (Dr. GRPO, arXiv:2503.20783). A group whose rewards agree has advantage 0. `ValueError` for a group of
    one.
    """
    _refuse_singleton(rewards)
    centred = _centred(rewards)
    match scale:
        case "std":
            return centred / (np.float32(_deviation(rewards, ddof=1)) + _EPSILON)
        case "population":
            return centred / (np.float32(_deviation(rewards, ddof=0)) + _EPSILON)
        case "none":
            return centred
        case _:
            assert_never(scale)


def leave_one_out(rewards: Float32[np.ndarray, " G"]) -> Float32[np.ndarray, " G"]:
    """Reward minus the mean of the other siblings (RLOO, arXiv:2402.14740). `ValueError` for a group of one."""
    _refuse_singleton(rewards)
    size = rewards.shape[0]
    return _centred(rewards) * np.float32(size / (size - 1))


def success_scale(rate: float, *, least: float, slope: float) -> float:
    """min(least + slope x the group's success, 1): what failures count (GUI-Libra, arXiv:2602.22190).

    Where hardly anything succeeds, what failed may well have been right in part, and pushes less.
    """
    return min(least + slope * rate, 1.0)


def scale_negative(advantages: Float[np.ndarray, " N"], *, scale: float) -> Float[np.ndarray, " N"]:
    """Multiply the negative advantages with `scale`; 1 changes nothing, 0 leaves the successes alone.

    `success_scale` is the scale of GUI-Libra (arXiv:2602.22190).
    """
    return np.where(advantages < 0, advantages * np.float32(scale), advantages)


def _centred(rewards: Float32[np.ndarray, " G"]) -> Float32[np.ndarray, " G"]:
    # A sum of float32s is exact in float64: equal rewards give exactly 0, and no rounding becomes a gradient
    return (rewards - rewards.astype(np.float64).mean()).astype(np.float32)


def _deviation(rewards: Float32[np.ndarray, " G"], *, ddof: int) -> float:
    return float(rewards.astype(np.float64).std(ddof=ddof))


def _refuse_singleton(rewards: Float32[np.ndarray, " G"]) -> None:
    if rewards.shape[0] < 2:
        raise ValueError("a group of one has nothing to be compared with")
