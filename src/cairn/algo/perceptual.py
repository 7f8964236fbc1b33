"""A hash of a picture that small changes leave as it is. Pure numpy."""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Bool, Float

SIDE = 16
BITS = SIDE * SIDE
"""Of a hash, which compares neighbours among SIDE x (SIDE + 1) squares of a picture."""


def difference_hash(grey: Float[np.ndarray, "H W"]) -> Bool[np.ndarray, " B"]:
    """Whether each square of the picture is darker than its right neighbour (dHash), row by row.

    Squares that are as bright as each other but for rounding count as equal, so that blank areas give no noise.
    """
    rows, columns = _bounds(grey.shape[0], SIDE), _bounds(grey.shape[1], SIDE + 1)
    sums = np.add.reduceat(np.add.reduceat(grey.astype(np.float64), rows[:-1], 0), columns[:-1], 1)
    means = sums / np.outer(np.diff(rows), np.diff(columns))
    return (np.diff(means, axis=1) > 1e-3 * (1.0 + np.abs(means[:, 1:]))).ravel()


def alike(hashes: Sequence[Bool[np.ndarray, " B"]], *, bits: int, among: Sequence[Hashable]) -> list[int]:
    """A number for each hash, equal where two differ in few bits.

    It is the place of the first hash that leads a group of the same `among` and differs in at most `bits` bits: being
    near is not transitive, so that groups need somebody to be near to.
    """
    leaders: list[int] = []
    found: list[int] = []
    for place, own in enumerate(hashes):
        near = [i for i in leaders if among[i] == among[place] and np.count_nonzero(hashes[i] != own) <= bits]
        if not near:
            leaders.append(place)
        found.append(near[0] if near else place)
    return found


def _bounds(length: int, parts: int) -> list[int]:
    if length < parts:
        raise ValueError(f"a picture needs at least {parts} pixels to a side, got {length}")
    return [length * part // parts for part in range(parts + 1)]
