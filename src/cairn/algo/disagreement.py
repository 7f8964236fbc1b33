"""How much the samples at one state disagree ("Where to Learn and How Far to Roll Out", action disagreement)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool


def disagreement(sizes: Sequence[int]) -> float:
    """Unbiased estimate of the chance that two samples differ, from the sizes of the clusters of equal ones.

    1 - sum n_j (n_j - 1) / (N (N - 1)), a U-statistic of 1 - sum p_j^2. Needs two samples.
    """
    total = sum(sizes)
    if total < 2 or min(sizes) < 1:
        raise ValueError(f"disagreement needs at least two samples in clusters of at least one, got {list(sizes)}")
    return 1.0 - sum(size * (size - 1) for size in sizes) / (total * (total - 1))


def pairwise_disagreement(same: Bool[np.ndarray, "N N"]) -> float:
    """The share of pairs that are not the same: `disagreement` without clusters, whatever the order of the samples.

    Both agree wherever being the same is transitive. `same` is symmetric; needs two samples.
    """
    size = same.shape[0]
    if size < 2:
        raise ValueError("disagreement needs at least two samples")
    upper = np.triu_indices(size, k=1)
    return 1.0 - float(same[upper].mean())
