"""What a policy-gradient step optimises: which loss, and how it is regularised."""

from dataclasses import dataclass
from typing import Literal, assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cairn.algo import corrections, kl, losses
from cairn.algo.correction_bounds import PUBLISHED_BOUNDS
from cairn.train.examples import Tokens

KlEstimator = Literal["k1", "k2", "k3"]
Loss = Literal["ppo", "gspo", "cispo", "reinforce", "sapo"]
Correction = Literal[
    "none", "recomputed", "token_truncated", "token_masked", "sequence_truncated", "sequence_masked", "geometric_mask"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What `improve` optimises, and in how many optimiser steps."""

    loss: Loss = "ppo"
    clip_low: float = 0.2  # of `ppo` and `gspo`
    clip_high: float = 0.28
    dual_clip: float | None = None  # of `ppo`
    weight_cap: float = 5.0  # of `cispo`
    weight_floor: float = 0.0
    gate_temperatures: tuple[float, float] = (1.0, 1.05)  # of `sapo`: for successes, and for failures
    correction: Correction = "none"  # for tokens that were not sampled by the policy as the learner finds it
    correction_low: float | None = None  # bounds of the correction; default: the published ones
    correction_high: float | None = None
    kl_coefficient: float = 0.0  # towards the policy that the first `improve` found
    kl_estimator: KlEstimator = "k3"
    kl_in_reward: bool = False  # then it is told to whoever credits, and costs nothing here
    entropy_coefficient: float = 0.0
    temperature: float = 1.0  # of the sampling: log-probabilities are those of the tempered distribution
    epochs: int = 1
    minibatches: int = 1  # each is one optimiser step

    @property
    def limits(self) -> tuple[float, float]:
        """Of the ratio, beyond which a clip takes gradients away."""
        return 1.0 - self.clip_low, 1.0 + self.clip_high


def correction_weights(
    objective: Objective, log_ratio: Float[Tensor, " T"], sequence: Int[Tensor, " T"]
) -> Float[Tensor, " T"]:
    """What each token's cost is multiplied with; `log_ratio` is learner minus engine, before the update's first step.

    With a correction the clip looks at how far the learner has moved since then, and these weights at how far the
    learner was from the engine (decoupled PPO, arXiv:2505.24298); without one, the clip looks at both together.
    `recomputed` takes every token for one of the learner's own, as ARPO takes what it replays.
    """
    if objective.correction == "none" or objective.correction == "recomputed":
        return torch.ones_like(log_ratio)
    low, high = PUBLISHED_BOUNDS[objective.correction]
    low = (low or 0.0) if objective.correction_low is None else objective.correction_low
    high = high if objective.correction_high is None else objective.correction_high
    match objective.correction:
        case "token_truncated":
            return corrections.token_truncated(log_ratio, cap=high)
        case "token_masked":
            return corrections.token_masked(log_ratio, low=low, high=high)
        case "sequence_truncated":
            return corrections.sequence_truncated(log_ratio, sequence, cap=high)
        case "sequence_masked":
            return corrections.sequence_masked(log_ratio, sequence, low=low, high=high)
        case "geometric_mask":
            return corrections.geometric_mask(log_ratio, sequence, low=low, high=high)
        case _:
            assert_never(objective.correction)


def divergence(objective: Objective, logprobs: Tensor, reference: Tensor) -> Tensor:
    """The KL to the reference as the recipe estimates it, of each sampled token [T]."""
    match objective.kl_estimator:
        case "k1":
            return kl.k1(logprobs, reference)
        case "k2":
            return kl.k2(logprobs, reference)
        case "k3":
            return kl.k3(logprobs, reference)
        case _:
            assert_never(objective.kl_estimator)


def policy_cost(objective: Objective, logprobs: Tensor, own: Tokens) -> Tensor:
    """The cost of each sampled token [T], before any regularisation."""
    match objective.loss:
        case "ppo":
            return losses.clipped_surrogate(
                logprobs,
                own.behaviour,
                own.credit,
                clip_low=objective.clip_low,
                clip_high=objective.clip_high,
                dual_clip=objective.dual_clip,
            )
        case "gspo":
            return losses.sequence_clipped(
                logprobs,
                own.behaviour,
                own.credit,
                own.sequence,
                clip_low=objective.clip_low,
                clip_high=objective.clip_high,
            )
        case "cispo":
            return losses.clipped_weights(
                logprobs, own.behaviour, own.credit, cap=objective.weight_cap, floor=objective.weight_floor
            )
        case "reinforce":
            return losses.score_function(logprobs, own.credit)
        case "sapo":
            gain, penalty = objective.gate_temperatures
            return losses.soft_gate(logprobs, own.behaviour, own.credit, temperature=gain, negative_temperature=penalty)
        case _:
            assert_never(objective.loss)
