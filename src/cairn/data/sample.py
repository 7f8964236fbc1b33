"""What is trained on: flat token sequences. One type for each phase, so that nothing is filled in later."""

from dataclasses import dataclass
from enum import StrEnum, auto

import numpy as np
from jaxtyping import Bool, Float32, Int32

from cairn.data.ids import ImageId
from cairn.errors import InvariantError


class Aggregation(StrEnum):
    """How token losses become one number. A sequence is one sample of one trajectory, before equal ones are merged."""

    TOKEN_MEAN = auto()  # sum over tokens / tokens of the batch
    SEQ_MEAN_TOKEN_SUM = auto()  # mean over sequences of the sum over tokens
    SEQ_MEAN_TOKEN_MEAN = auto()  # mean over sequences of the mean over tokens
    SEQ_MEAN_TOKEN_SUM_NORM = auto()  # sum over tokens / a constant
    TRAJECTORY_MEAN = auto()  # mean over trajectories of the mean over turns of the mean over tokens


class NoGradient(StrEnum):
    """Why a group teaches nothing."""

    ALL_SOLVED = auto()
    ALL_FAILED = auto()
    EQUAL_REWARDS = auto()  # neither all solved nor all failed, yet no two rewards differ
    TOO_SMALL = auto()  # fewer members are left than are compared
    NO_BASELINE = auto()  # the greedy rollout that it is compared with was lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One contiguous token sequence. `loss_mask` is True where the policy sampled the token."""

    token_ids: Int32[np.ndarray, " L"]
    loss_mask: Bool[np.ndarray, " L"]
    logprobs: Float32[np.ndarray, " L"]  # of the sampling policy; 0 where not sampled
    versions: Int32[np.ndarray, " L"]  # of the sampling policy; -1 where not sampled
    images: tuple[ImageId, ...]  # one for each placeholder run, in order

    def __post_init__(self) -> None:
        shapes = {a.shape for a in (self.token_ids, self.loss_mask, self.logprobs, self.versions)}
        if len(shapes) != 1:
            raise InvariantError(f"per-token arrays differ in shape: {shapes}")
        if self.loss_mask[0]:
            raise InvariantError("a sample starts with context, so that packing cannot leak across its start")
        if not self.loss_mask.any():
            raise InvariantError("a sample holds at least one token that the policy sampled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Two trajectories of one task, or two answers at one state, as their samples; the first is the better one."""

    chosen: tuple[Sample, ...]
    rejected: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not self.chosen or not self.rejected:
            raise InvariantError("both sides of a preference hold at least one sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """What a learner says of a sample before it learns from it; 0 where the policy did not sample the token."""

    divergence: Float32[np.ndarray, " L"]  # an estimate of the KL to the reference, of each token
    values: Float32[np.ndarray, " L"]  # what a critic expects to follow, before each token

    def __post_init__(self) -> None:
        if not np.isfinite(self.divergence).all() or not np.isfinite(self.values).all():
            raise InvariantError("a KL to the reference or a critic's value is not finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What a critic is to learn of a sample; 0 where the policy did not sample the token."""

    values: Float32[np.ndarray, " L"]  # what it said before
    returns: Float32[np.ndarray, " L"]  # what it ought to have said


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditedSample:
    """A sample with what each token is worth; zero where the policy did not sample the token.

    `positive` and `negative` are sums of weight x advantage over every trajectory that holds this very sample
    (equal prompts and answers in a group are computed once); `weights` is the sum of their aggregation weights.
    A policy loss is positively homogeneous in the advantage of one sign, so the merged loss is exact.
    """

    sample: Sample
    positive: Float32[np.ndarray, " L"]  # >= 0
    negative: Float32[np.ndarray, " L"]  # <= 0
    weights: Float32[np.ndarray, " L"]  # >= 0; what a KL or entropy term is multiplied with
    critic: Targets | None = None  # where there is a critic; such samples are not merged

    def __post_init__(self) -> None:
        length = self.sample.token_ids.shape
        if self.critic is not None and not self.critic.values.shape == self.critic.returns.shape == length:
            raise InvariantError("one value and one return per token")
        if not self.positive.shape == self.negative.shape == self.weights.shape == length:
            raise InvariantError("one credit per token")
        off = ~self.sample.loss_mask
        if self.positive[off].any() or self.negative[off].any() or self.weights[off].any():
            raise InvariantError("a token that the policy did not sample has no credit")
        if (self.positive < 0).any() or (self.negative > 0).any() or (self.weights < 0).any():
            raise InvariantError("positive and weights are at least 0, negative is at most 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The samples of one optimiser step.

    Global denominators are already inside the credits and weights, so that a loss is a plain sum over tokens and no
    split into micro-batches can change it.
    """

    samples: tuple[CreditedSample, ...]

    def __post_init__(self) -> None:
        if not self.samples:
            raise InvariantError("a batch holds at least one sample")

    @property
    def num_tokens(self) -> int:
        """Prompt and response tokens that the learner will compute."""
        return sum(s.sample.token_ids.shape[0] for s in self.samples)
