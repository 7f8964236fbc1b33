"""What a policy-gradient step optimises: which loss, and how it is regularised."""

from dataclasses import dataclass
from typing import Literal, assert_never

from torch import Tensor

from cairn.algo import losses
from cairn.train.examples import Tokens

Loss = Literal["ppo", "gspo", "cispo", "reinforce", "sapo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What `improve` optimises, and in how many optimiser steps."""

    loss: Loss = "ppo"
    clip_low: float = 0.2  # of `ppo` and `gspo`
    clip_high: float = 0.28
    dual_clip: float | None = None  # of `ppo`
    weight_cap: float = 5.0  # of `cispo`
    kl_coefficient: float = 0.0  # towards the policy that the first `improve` found
    kl_estimator: Literal["k2", "k3"] = "k3"
    entropy_coefficient: float = 0.0
    temperature: float = 1.0  # of the sampling: log-probabilities are those of the tempered distribution
    epochs: int = 1
    minibatches: int = 1  # each is one optimiser step

    @property
    def limits(self) -> tuple[float, float]:
        """Of the ratio, beyond which a clip takes gradients away."""
        return 1.0 - self.clip_low, 1.0 + self.clip_high


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
            return losses.clipped_weights(logprobs, own.behaviour, own.credit, cap=objective.weight_cap)
        case "reinforce":
            return losses.score_function(logprobs, own.credit)
        case "sapo":
            return losses.soft_gate(logprobs, own.behaviour, own.credit)
        case _:
            assert_never(objective.loss)
