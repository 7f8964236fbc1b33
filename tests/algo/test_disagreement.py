"""Disagreement between samples, against the published table and its own definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.disagreement import disagreement, pairwise_disagreement

# every partition of eight samples, with the published estimates; the threshold is 0.45
TABLE = {
    "8": 0.000, "7-1": 0.250, "6-2": 0.429, "6-1-1": 0.464, "5-3": 0.536, "4-4": 0.571, "5-2-1": 0.607,
    "5-1-1-1": 0.643, "4-3-1": 0.679, "4-2-2": 0.714, "3-3-2": 0.750, "4-2-1-1": 0.750, "3-3-1-1": 0.786,
    "4-1-1-1-1": 0.786, "3-2-2-1": 0.821, "2-2-2-2": 0.857, "3-2-1-1-1": 0.857, "2-2-2-1-1": 0.893,
    "3-1-1-1-1-1": 0.893, "2-2-1-1-1-1": 0.929, "2-1-1-1-1-1-1": 0.964, "1-1-1-1-1-1-1-1": 1.000,
}  # fmt: skip


@pytest.mark.parametrize("pattern", TABLE)
def test_every_pattern_of_eight_samples_has_its_published_value(pattern: str) -> None:
    sizes = [int(size) for size in pattern.split("-")]
    assert sum(sizes) == 8
    assert disagreement(sizes) == pytest.approx(TABLE[pattern], abs=5e-4)


def test_three_patterns_alone_lie_below_the_threshold() -> None:
    kept = {pattern for pattern in TABLE if disagreement([int(s) for s in pattern.split("-")]) > 0.45}
    assert TABLE.keys() - kept == {"8", "7-1", "6-2"}
    assert len(TABLE) == 22


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12))
def test_clusters_and_pairs_agree_where_being_the_same_is_transitive(labels: list[int]) -> None:
    same = np.array([[a == b for b in labels] for a in labels])
    sizes = [labels.count(label) for label in set(labels)]
    assert pairwise_disagreement(same) == pytest.approx(disagreement(sizes))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8))
def test_it_is_the_share_of_ordered_pairs_of_different_samples(labels: list[int]) -> None:
    pairs = [(a, b) for i, a in enumerate(labels) for j, b in enumerate(labels) if i != j]
    expected = sum(a != b for a, b in pairs) / len(pairs)
    assert disagreement([labels.count(label) for label in set(labels)]) == pytest.approx(expected)


def test_the_estimate_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    chances = np.array([0.5, 0.3, 0.2])
    found = [disagreement([int(n) for n in rng.multinomial(8, chances) if n]) for _ in range(20_000)]
    assert np.mean(found) == pytest.approx(1 - float((chances**2).sum()), abs=0.005)


@pytest.mark.parametrize("sizes", [[], [1], [2, 0]])
def test_it_needs_two_samples(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="at least two samples"):
        disagreement(sizes)
    with pytest.raises(ValueError, match="at least two samples"):
        pairwise_disagreement(np.ones((1, 1), dtype=bool))
