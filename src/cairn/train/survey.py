"""What is measured while a batch is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite

import torch
from torch import Tensor

from cairn.algo import kl
from cairn.errors import InvariantError
from cairn.models.scoring import Scores
from cairn.train.examples import Example, Tokens, by_example
from cairn.train.guard import Agreement
from cairn.train.ranks import Ranks


@dataclass(slots=True, kw_only=True)
class Sums:
    """What is added up: over the tokens of a call, and over all ranks once these have joined."""

    loss: float = 0.0
    computed: float = 0.0  # tokens, padding not counted
    weight: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    sampled: float = 0.0  # tokens, and so with the next three
    clipped: float = 0.0
    compared: float = 0.0
    corrected: float = 0.0
    ratio: float = 0.0
    ratio_square: float = 0.0
    correction: float = 0.0
    correction_square: float = 0.0


class Survey:
    """Sums over the sampled tokens of a call. Means are weighted like the loss, so merged samples count in full."""

    def __init__(self, agreement: Agreement) -> None:
        """Start from nothing; compare log-probabilities by `agreement`."""
        self.agreement = agreement
        self.sums = Sums()
        self._joined = False

    def join(self, ranks: Ranks) -> None:
        """Take in what the other ranks have measured, once all of them are done.

        An `InvariantError`, on all of them, where the loss is no number.
        """
        if self._joined:
            return
        self._joined = True
        self.sums = Sums(**_joined(asdict(self.sums), ranks))
        if not isfinite(self.sums.loss):
            raise InvariantError(f"the loss is {self.sums.loss}: a log-probability or a credit is not finite")
        self.agreement.join(ranks)

    @property
    def entropy(self) -> float:
        """Mean entropy of the distributions that tokens were chosen from, nats."""
        return self.sums.entropy / self.sums.weight if self.sums.weight else 0.0

    @property
    def kl(self) -> float:
        """Mean k3 of the policy against the sampling policy."""
        return self.sums.kl / self.sums.weight if self.sums.weight else 0.0

    @property
    def clipped(self) -> float:
        """Share of sampled tokens that the clip holds back."""
        return self.sums.clipped / self.sums.sampled if self.sums.sampled else 0.0

    @property
    def effective(self) -> float:
        """As which share of its tokens the corrected batch counts: (sum w)^2 / (n sum w^2), 1 without a correction."""
        sums = self.sums
        if not sums.corrected:
            return 1.0
        return sums.correction**2 / (sums.corrected * sums.correction_square) if sums.correction_square else 0.0

    @property
    def ratio_mean(self) -> float:
        """Mean ratio of the policy's probabilities to those that the update started from, over sampled tokens."""
        return self.sums.ratio / self.sums.compared if self.sums.compared else 1.0

    @property
    def ratio_deviation(self) -> float:
        """Its standard deviation."""
        if not self.sums.compared:
            return 0.0
        return max(0.0, self.sums.ratio_square / self.sums.compared - self.ratio_mean**2) ** 0.5

    @torch.no_grad()
    def add(self, examples: Sequence[Example], tokens: Tokens, scores: Scores) -> None:
        """Note the tokens of `examples`, unless they are computed for company."""
        if examples[0].idle:
            return
        chosen = scores.chosen.detach()
        self.sums.weight += float(tokens.weights.sum())
        self.sums.entropy += float((scores.entropy.detach() * tokens.weights).sum())
        self.sums.kl += float((kl.k3(chosen, tokens.behaviour) * tokens.weights).sum())
        self.sums.sampled += chosen.shape[0]
        self.sums.computed += scores.computed
        for example, own in by_example(examples, chosen.cpu()):
            self.agreement.add(example, own.numpy())

    def note_clipped(self, clipped: Tensor) -> None:
        """Count tokens at the clip."""
        self.sums.clipped += int(clipped.sum())

    def note_ratios(self, log_ratio: Tensor) -> None:
        """Count what probabilities have become."""
        ratio = log_ratio.detach().double().clamp(-20, 20).exp().cpu()
        self.sums.ratio += float(ratio.sum())
        self.sums.ratio_square += float(ratio.square().sum())
        self.sums.compared += ratio.shape[0]

    def note_weights(self, weights: Tensor) -> None:
        """Count what tokens' costs were multiplied with."""
        self.sums.correction += float(weights.double().sum())
        self.sums.correction_square += float(weights.double().square().sum())
        self.sums.corrected += weights.shape[0]


def _joined(own: Mapping[str, float], ranks: Ranks) -> dict[str, float]:
    """The sums of all ranks by the names of this one's."""
    found = ranks.total(torch.tensor(list(own.values()), dtype=torch.float64)).tolist()
    return dict(zip(own, found, strict=True))
