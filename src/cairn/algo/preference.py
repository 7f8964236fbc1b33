"""Costs of preferring one answer to another. Pure torch.

A gain is the log-probability of an answer under the policy minus that under the reference, summed over its tokens; in
float64, because sums of many tokens nearly cancel.
"""

import torch
from jaxtyping import Bool, Float64
from torch import Tensor
from torch.nn.functional import logsigmoid


def direct(margins: Float64[Tensor, " P"], *, beta: float, smoothing: float = 0.0) -> Float64[Tensor, " P"]:
    """DPO (arXiv:2305.18290): -log sigmoid(beta m), m the gain of the chosen answer minus that of the rejected one.

    `smoothing` is the share of pairs that are thought to be the wrong way round.
    """
    return -(1 - smoothing) * logsigmoid(beta * margins) - smoothing * logsigmoid(-beta * margins)


def identity(margins: Float64[Tensor, " P"], *, beta: float) -> Float64[Tensor, " P"]:
    """IPO (arXiv:2310.12036): (m - 1 / (2 beta))^2; the gains in m are means over tokens, not sums."""
    return (margins - 1 / (2 * beta)).square()


def prospect(
    gains: Float64[Tensor, " N"],
    desirable: Bool[Tensor, " N"],
    *,
    beta: float,
    baseline: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Float64[Tensor, " N"]:
    """KTO (arXiv:2402.01306): w (1 - sigmoid(beta (g - z))) for a desirable answer, and for another one with z - g.

    `baseline` is z >= 0: the mean gain of answers to other prompts than their own.
    """
    wanted = desirable_weight * (1 - torch.sigmoid(beta * (gains - baseline)))
    unwanted = undesirable_weight * (1 - torch.sigmoid(beta * (baseline - gains)))
    return torch.where(desirable, wanted, unwanted)
