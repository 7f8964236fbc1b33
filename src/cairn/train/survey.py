"""What is measured while a batch is computed."""

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor

from cairn.algo import kl
from cairn.errors import InvariantError
from cairn.models.scoring import Scores
from cairn.train.examples import Example, Tokens, by_example
from cairn.train.guard import Agreement
from cairn.train.ranks import Ranks


class Survey:
    """Sums over the sampled tokens of a call. Means are weighted like the loss, so merged samples count in full."""

    def __init__(self, agreement: Agreement) -> None:
        """Start from nothing; compare log-probabilities by `agreement`."""
        self.agreement = agreement
        self.loss = 0.0
        self.computed = 0  # tokens, padding not counted
        self._weight = 0.0
        self._entropy = 0.0
        self._kl = 0.0
        self._clipped = 0
        self._sampled = 0
        self._corrected = 0
        self._corrections = 0.0  # sum of weights
        self._squares = 0.0  # sum of their squares
        self._ratios = torch.zeros(2, dtype=torch.float64)  # sums of the ratio and of its square
        self._compared = 0
        self._joined = False

    def join(self, ranks: Ranks) -> None:
        """Take in what the other ranks have measured, once all of them are done.

        An `InvariantError`, on all of them, where the loss is no number.
        """
        if self._joined:
            return
        self._joined = True
        own = (self.loss, self.computed, self._weight, self._entropy, self._kl, self._clipped, self._sampled)
        weights = (self._corrected, self._corrections, self._squares)
        measured = torch.tensor([*own, *weights, self._compared], dtype=torch.float64)
        found = ranks.total(torch.cat([measured, self._ratios])).tolist()
        self.loss, computed, self._weight, self._entropy, self._kl, clipped, sampled = found[:7]
        corrected, self._corrections, self._squares, compared, *ratios = found[7:]
        self.computed, self._clipped, self._sampled = int(computed), int(clipped), int(sampled)
        self._corrected, self._compared = int(corrected), int(compared)
        self._ratios = torch.tensor(ratios, dtype=torch.float64)
        if not isfinite(self.loss):
            raise InvariantError(f"the loss is {self.loss}: a log-probability or a credit is not finite")
        self.agreement.join(ranks)

    @property
    def entropy(self) -> float:
        """Mean entropy of the distributions that tokens were chosen from, nats."""
        return self._entropy / self._weight if self._weight else 0.0

    @property
    def kl(self) -> float:
        """Mean k3 of the policy against the sampling policy."""
        return self._kl / self._weight if self._weight else 0.0

    @property
    def clipped(self) -> float:
        """Share of sampled tokens that the clip holds back."""
        return self._clipped / self._sampled if self._sampled else 0.0

    @property
    def effective(self) -> float:
        """As which share of its tokens the corrected batch counts: (sum w)^2 / (n sum w^2), 1 without a correction."""
        if not self._corrected:
            return 1.0
        return self._corrections**2 / (self._corrected * self._squares) if self._squares else 0.0

    @property
    def ratio_mean(self) -> float:
        """Mean ratio of the policy's probabilities to those that the update started from, over sampled tokens."""
        return float(self._ratios[0]) / self._compared if self._compared else 1.0

    @property
    def ratio_deviation(self) -> float:
        """Its standard deviation."""
        if not self._compared:
            return 0.0
        return max(0.0, float(self._ratios[1]) / self._compared - self.ratio_mean**2) ** 0.5

    @torch.no_grad()
    def add(self, examples: Sequence[Example], tokens: Tokens, scores: Scores) -> None:
        """Note the tokens of `examples`, unless they are computed for company."""
        if examples[0].idle:
            return
        chosen = scores.chosen.detach()
        self._weight += float(tokens.weights.sum())
        self._entropy += float((scores.entropy.detach() * tokens.weights).sum())
        self._kl += float((kl.k3(chosen, tokens.behaviour) * tokens.weights).sum())
        self._sampled += chosen.shape[0]
        self.computed += scores.computed
        for example, own in by_example(examples, chosen.cpu()):
            self.agreement.add(example, own.numpy())

    def note_clipped(self, clipped: Tensor) -> None:
        """Count tokens at the clip."""
        self._clipped += int(clipped.sum())

    def note_ratios(self, log_ratio: Tensor) -> None:
        """Count what probabilities have become."""
        ratio = log_ratio.detach().double().clamp(-20, 20).exp().cpu()
        self._ratios += torch.stack([ratio.sum(), ratio.square().sum()])
        self._compared += ratio.shape[0]

    def note_weights(self, weights: Tensor) -> None:
        """Count what tokens' costs were multiplied with."""
        self._corrected += weights.shape[0]
        self._corrections += float(weights.double().sum())
        self._squares += float(weights.double().square().sum())
