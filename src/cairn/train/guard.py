"""The alignment guard: what must hold before an optimiser steps. A breach stops the run and names the sample.

Lengths are the data types' own affair; here stand the invariants that need the model, the version or all of a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32

from cairn.data.ids import ImageId, PolicyVersion
from cairn.data.sample import Batch, Sample
from cairn.errors import InvariantError
from cairn.train.examples import Example
from cairn.train.ranks import Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far the engine's and the learner's log-probabilities may lie apart at one version, in nats.

    The defaults suit an engine in bfloat16 beside a learner in float32 or autocast, where small models differ by some
    hundredths. Wrong ids, images or weights differ by whole nats.
    """

    mean: float = 0.15  # of |difference| over a batch
    token: float = 3.0  # of any token


ImageTokens = Callable[[ImageId], int]
"""How many placeholders stand for an image."""


def check_vocabulary(batch: Batch, *, size: int) -> None:
    """Every token is one that the model knows: there are `size` of them."""
    for index, credited in enumerate(batch.samples):
        ids = credited.sample.token_ids
        strange = ids[(ids < 0) | (ids >= size)]
        if strange.size:
            raise InvariantError(
                f"{_name(index, credited.sample)}: it holds token {strange[0]}, and the "
                f"learner's vocabulary has {size}: the engine that sampled it has another one"
            )


def check_shape(batch: Batch, *, placeholder_id: int | None, image_tokens: ImageTokens | None = None) -> None:
    """Every sample has its images' placeholders, and none was sampled.

    With `image_tokens` their number is counted, and they may stand between answers. Without it, there is an image for
    each run of placeholders, and all of them stand before the first sampled token.
    """
    for index, credited in enumerate(batch.samples):
        sample = credited.sample
        if image_tokens is not None:
            _check_counted(index, sample, placeholder_id, image_tokens)
            continue
        first = int(np.argmax(sample.loss_mask))
        before, after = _runs(sample, placeholder_id, end=first), _runs(sample, placeholder_id, end=None)
        if after != len(sample.images):
            raise InvariantError(f"{_name(index, sample)}: {after} image placeholders but {len(sample.images)} images")
        if before != after:
            raise InvariantError(f"{_name(index, sample)}: {after - before} images after the first sampled token")


def check_sampled(batch: Batch, *, version: PolicyVersion, foreign: bool = False) -> None:
    """Every token in the loss has a log-probability and a version that some policy up to `version` gave it.

    With `foreign` all of them are of another run's policies, and have no version here.
    """
    for index, credited in enumerate(batch.samples):
        sample = credited.sample
        versions, logprobs = sample.versions[sample.loss_mask], sample.logprobs[sample.loss_mask]
        if not foreign and (versions.min() < 0 or versions.max() > version):
            raise InvariantError(
                f"{_name(index, sample)}: sampled by versions {versions.min()} to {versions.max()}, "
                f"the learner is at {version}"
            )
        if not np.isfinite(logprobs).all() or logprobs.max() > 0:
            raise InvariantError(f"{_name(index, sample)}: a sampled token has log-probability {logprobs.max()}")


class Agreement:
    """Compares the engine's log-probabilities with the learner's own at the version that sampled."""

    def __init__(self, *, version: PolicyVersion, bounds: Bounds) -> None:
        """Tokens of older versions are passed over: their policy is gone."""
        self._version = version
        self._bounds = bounds
        self._sum = 0.0
        self._count = 0
        self._worst = 0.0
        self._where = ""

    def add(self, example: Example, recomputed: Float32[np.ndarray, " T"]) -> None:
        """Note the differences of one example."""
        fresh = example.versions == self._version
        if not fresh.any():
            return
        difference = np.abs(example.logprobs - recomputed)[fresh]
        worst = float(np.nan_to_num(difference, nan=np.inf).max())
        self._sum += float(difference.sum())
        self._count += difference.shape[0]
        if worst > self._worst or not self._where:
            self._worst = worst
            size = example.prompt.token_ids.shape[0]
            self._where = f"sample {example.index} ({size} prompt tokens, answer {example.answer.tolist()})"

    @property
    def mean(self) -> float:
        """Mean absolute difference; 0 where no token is of this version."""
        return self._sum / self._count if self._count else 0.0

    @property
    def worst(self) -> float:
        """Largest absolute difference."""
        return self._worst

    def join(self, ranks: Ranks) -> None:
        """Take in what the other ranks have found."""
        own = torch.tensor([self._sum, self._count, self._worst], dtype=torch.float64)
        found = ranks.gathered(own)
        worst = int(found[:, 2].argmax())
        if worst != ranks.rank and float(found[worst, 2]) > self._worst:
            self._where = f"a sample that rank {worst} computed"
        self._sum, self._count = float(found[:, 0].sum()), int(found[:, 1].sum())
        self._worst = float(found[worst, 2])

    def verify(self) -> None:
        """Raise `InvariantError` where a bound is passed."""
        if self._worst > self._bounds.token or not self.mean <= self._bounds.mean:
            raise InvariantError(
                f"engine and learner disagree at version {self._version}: mean |difference| of log-probabilities "
                f"{self.mean:.4f} (bound {self._bounds.mean}), largest {self._worst:.4f} (bound {self._bounds.token}), "
                f"in {self._where}"
            )


def _check_counted(index: int, sample: Sample, placeholder_id: int | None, image_tokens: ImageTokens) -> None:
    is_placeholder = sample.token_ids == placeholder_id
    wanted = sum(image_tokens(image) for image in sample.images)
    if (found := int(is_placeholder.sum())) != wanted:
        raise InvariantError(
            f"{_name(index, sample)}: {found} image placeholders, but its {len(sample.images)} images take {wanted}"
        )
    if (is_placeholder & sample.loss_mask).any():
        raise InvariantError(f"{_name(index, sample)}: an image placeholder counts as sampled")


def _runs(sample: Sample, placeholder_id: int | None, *, end: int | None) -> int:
    """Maximal runs of the placeholder among the first `end` ids."""
    if placeholder_id is None:
        return 0
    is_placeholder = sample.token_ids[:end] == placeholder_id
    return int((is_placeholder & ~np.concatenate([[False], is_placeholder[:-1]])).sum())


def _name(index: int, sample: Sample) -> str:
    return f"sample {index} of the batch ({sample.token_ids.shape[0]} tokens, {int(sample.loss_mask.sum())} sampled)"
