"""From how much likelier answers have become to what each of their tokens is worth to a preference loss."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import torch
from jaxtyping import Float64
from torch import Tensor

from cairn.algo import preference
from cairn.data.sample import Batch, Preference, Sample
from cairn.train.examples import Example, example, uncredited

PreferenceLoss = Literal["dpo", "ipo", "kto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceObjective:
    """What `prefer` optimises."""

    loss: PreferenceLoss = "dpo"
    beta: float = 0.1
    smoothing: float = 0.0  # of `dpo`
    desirable_weight: float = 1.0  # of `kto`
    undesirable_weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides of some pairs as examples of one batch; side 2 i is what was chosen in pair i, 2 i + 1 the other."""

    examples: tuple[Example, ...]
    of: tuple[int, ...]  # the side of each example
    batch: Batch

    @property
    def count(self) -> int:
        """Two for each pair."""
        return self.of[-1] + 1

    @property
    def lengths(self) -> Float64[Tensor, " S"]:
        """Sampled tokens of each side."""
        return self.totals([float(e.sampled.shape[0]) for e in self.examples])

    def totals(self, values: Sequence[float]) -> Float64[Tensor, " S"]:
        """Sums over the examples of each side."""
        sums = torch.zeros(self.count, dtype=torch.float64)
        return sums.index_add_(0, torch.tensor(self.of), torch.tensor(values, dtype=torch.float64))

    def mismatched(self) -> list[Example]:
        """The first prompt of every side with the first answer of the next pair's same side; none for a single pair."""
        firsts = [self.examples[self.of.index(side)] for side in range(self.count)]
        if self.count < 4:
            return []
        others = firsts[2:] + firsts[:2]
        return [replace(other, prompt=own.prompt) for own, other in zip(firsts, others, strict=True)]


def sides_of(pairs: Sequence[Preference]) -> Sides:
    """Every token weighs the same in what is measured; credits are left to the loss."""
    samples: list[Sample] = []
    of: list[int] = []
    for number, pair in enumerate(pairs):
        for side, own in enumerate((pair.chosen, pair.rejected)):
            samples += own
            of += [2 * number + side] * len(own)
    tokens = sum(int(sample.loss_mask.sum()) for sample in samples)
    batch = Batch(samples=tuple(uncredited(sample, weight=1 / tokens) for sample in samples))
    return Sides(examples=tuple(example(i, s) for i, s in enumerate(batch.samples)), of=tuple(of), batch=batch)


def cost_and_slopes(
    objective: PreferenceObjective, gains: Float64[Tensor, " S"], sides: Sides, *, baseline: float
) -> tuple[float, Float64[Tensor, " S"]]:
    """The mean cost, and its derivative by each side's gain: what every token of that side is worth."""
    free = gains.detach().clone().requires_grad_()
    match objective.loss:
        case "dpo":
            costs = preference.direct(free[::2] - free[1::2], beta=objective.beta, smoothing=objective.smoothing)
        case "ipo":
            means = free / sides.lengths
            costs = preference.identity(means[::2] - means[1::2], beta=objective.beta)
        case "kto":
            desirable = torch.arange(sides.count) % 2 == 0
            costs = preference.prospect(
                free,
                desirable,
                beta=objective.beta,
                baseline=baseline,
                desirable_weight=objective.desirable_weight,
                undesirable_weight=objective.undesirable_weight,
            )
        case _:
            assert_never(objective.loss)
    (slopes,) = torch.autograd.grad(costs.mean(), free)
    return float(costs.detach().mean()), slopes
