"""Evaluation statistics: estimates, and 95 % intervals that respect how the tries were drawn.

Tries of one task instance are alike, so the instance, not the try, is the unit that was sampled. `mean_interval`
therefore takes one value for each instance (its success rate over k tries, its Pass@k) and widens Wilson's interval by
the effective number of tries, p (1 - p) / variance of the mean (Korn and Graubard 1998). It stays inside [0, 1], needs
no resampling, and equals Wilson's interval but for the factor n / (n - 1) where every instance was tried once.
"""

from dataclasses import dataclass
from math import comb, sqrt

import numpy as np
from jaxtyping import Float64, Int64

_Z = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def pass_at_k(tries: int, successes: int, k: int) -> float:
    """Unbiased estimate that at least one of k tries succeeds (arXiv:2107.03374)."""
    if not 0 <= successes <= tries or not 1 <= k <= tries:
        raise ValueError(f"need 0 <= successes <= tries and 1 <= k <= tries, got {successes=}, {tries=}, {k=}")
    return 1.0 - comb(tries - successes, k) / comb(tries, k)


def wilson(successes: int, tries: int) -> Interval:
    """Wilson's score interval of a share of independent tries (E. B. Wilson 1927)."""
    if not 0 <= successes <= tries or tries == 0:
        raise ValueError(f"need 0 <= successes <= tries and at least one try, got {successes=}, {tries=}")
    return _score_interval(successes / tries, float(tries))


def mean_interval(values: Float64[np.ndarray, " N"]) -> Interval:
    """Interval of the mean of per-instance values in [0, 1]; instances are independent, tries inside one need not be.

    Where all values agree the variance says nothing: the number of instances is taken, which errs to the wide side.
    """
    if values.shape[0] == 0 or values.min() < 0.0 or values.max() > 1.0:
        raise ValueError("need at least one value, all in [0, 1]")
    size = values.shape[0]
    mean = float(values.mean())
    variance = float(values.var(ddof=1)) / size if size > 1 else 0.0
    effective = mean * (1.0 - mean) / variance if variance > 1e-12 else float(size)
    return _score_interval(mean, effective)


def clustered_interval(values: Float64[np.ndarray, " N"], clusters: Int64[np.ndarray, " N"]) -> Interval:
    """The same where values of one cluster, such as states of one task, may be alike: the clusters were sampled.

    The variance is the linearised one of a ratio, so that every value weighs the same however large its cluster is.
    Where every cluster has one value it is `mean_interval`.
    """
    if values.shape[0] == 0 or values.min() < 0.0 or values.max() > 1.0:
        raise ValueError("need at least one value, all in [0, 1]")
    mean = float(values.mean())
    _, place = np.unique(clusters, return_inverse=True)
    residuals = np.bincount(place, weights=values - mean)
    size = residuals.shape[0]
    variance = float(np.square(residuals).sum()) * size / (size - 1) / values.shape[0] ** 2 if size > 1 else 0.0
    effective = mean * (1.0 - mean) / variance if variance > 1e-12 else float(size)
    return _score_interval(mean, effective)


def paired_difference(before: Float64[np.ndarray, " N"], after: Float64[np.ndarray, " N"]) -> Interval:
    """Normal interval of the mean of after - before on the same instances; needs two of them, is good from about 30."""
    if before.shape != after.shape or before.shape[0] < 2:
        raise ValueError(f"need at least two pairs, got {before.shape[0]} and {after.shape[0]} values")
    difference = after - before
    mean = float(difference.mean())
    margin = _Z * float(difference.std(ddof=1)) / sqrt(difference.shape[0])
    return Interval(mean=mean, low=mean - margin, high=mean + margin)


def _score_interval(share: float, tries: float) -> Interval:
    share = min(1.0, max(0.0, share))
    spread = _Z**2 / tries
    centre = (share + spread / 2) / (1 + spread)
    margin = _Z / (1 + spread) * sqrt(share * (1 - share) / tries + spread / (4 * tries))
    return Interval(mean=share, low=max(0.0, min(share, centre - margin)), high=min(1.0, max(share, centre + margin)))
