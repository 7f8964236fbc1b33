"""What tells a state where the policy hesitates from one where it does not."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cairn.algo.disagreement import disagreement
from cairn.data.matching import Matching
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError


class Signal(StrEnum):
    """What is measured at a checkpoint."""

    DISAGREEMENT = "disagreement"  # of the sampled actions; the published signal
    VARIANCE = "variance"  # of the samples' rewards (PivotRL)
    ENTROPY = "entropy"  # of the first token, in nats, estimated from the samples
    ALL = "all"  # nothing: every checkpoint is a pivot
    RANDOM = "random"  # nothing: a share of the checkpoints, drawn once


_THRESHOLDS = {
    Signal.DISAGREEMENT: 0.45,
    Signal.VARIANCE: 0.0,
    Signal.ENTROPY: 0.5,
    Signal.ALL: 0.0,
    Signal.RANDOM: 0.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A checkpoint is a pivot where the signal is above the threshold (default: the signal's usual one), strictly."""

    signal: Signal = Signal.DISAGREEMENT
    threshold: float | None = None
    rules: Matching = field(default_factory=Matching)

    def __post_init__(self) -> None:
        if self.threshold is not None and self.threshold < 0:
            raise ConfigError(f"the threshold of {self.signal} must be at least 0, got {self.threshold}")

    @property
    def measured(self) -> bool:
        """Whether answers have to be sampled."""
        return self.signal not in {Signal.ALL, Signal.RANDOM}

    def keeps(self, score: float) -> bool:
        """Whether a checkpoint with that score is a pivot."""
        return score > (_THRESHOLDS[self.signal] if self.threshold is None else self.threshold)

    def unmeasured(self, rng: np.random.Generator) -> float:
        """The score of a checkpoint where nothing is sampled."""
        return 1.0 if self.signal is Signal.ALL else float(rng.random())

    def score(self, group: ScoredGroup) -> float | None:
        """Of the answers of one group at a recorded state; None where there are fewer than two."""
        turns = [member.trajectory.turns[0] for member in group.members if member.trajectory.turns]
        if len(turns) < 2:
            return None
        match self.signal:
            case Signal.VARIANCE:
                return float(np.var(group.rewards))
            case Signal.ENTROPY:
                return float(-np.mean([turn.completion.logprobs[0] for turn in turns]))
            case _:
                actions = [turn.action for turn in turns]
                clusters = self.rules.clusters(actions, turns[0].observation)
                return disagreement([len(cluster) for cluster in clusters])
