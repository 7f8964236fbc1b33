from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.statistics import clustered_interval, mean_interval, paired_difference, pass_at_k, wilson


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_counts_the_draws_that_hold_a_success(case: tuple[int, int, int]) -> None:
    tries, successes, k = case
    results = [1] * successes + [0] * (tries - successes)
    draws = list(combinations(results, k))
    assert pass_at_k(tries, successes, k) == pytest.approx(sum(any(d) for d in draws) / len(draws))


@pytest.mark.parametrize(("tries", "successes", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_refuses_what_was_not_tried(tries: int, successes: int, k: int) -> None:
    with pytest.raises(ValueError, match="need"):
        pass_at_k(tries, successes, k)


def test_golden_wilson() -> None:
    # Newcombe 1998, table I: 81 of 263 gives 0.2553 to 0.3662; 0 of 20 gives 0 to 0.1611
    found = wilson(81, 263)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert (wilson(0, 20).low, wilson(0, 20).high) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_wilson_needs_a_try() -> None:
    with pytest.raises(ValueError, match="at least one"):
        wilson(0, 0)


@given(st.integers(2, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_with_one_try_each_the_interval_of_the_mean_is_all_but_wilsons(case: tuple[int, int]) -> None:
    successes, size = case
    values = np.array([1.0] * successes + [0.0] * (size - successes))
    found, expected = mean_interval(values), wilson(successes, size)
    assert found.mean == pytest.approx(expected.mean)
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=1.0 / size + 1e-9)


VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=40).map(np.array)


@given(VALUES)
def test_an_interval_holds_its_mean_and_stays_in_bounds(values: np.ndarray) -> None:
    found = mean_interval(values)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.mean == pytest.approx(float(values.mean()))


@given(VALUES, st.integers(2, 5))
def test_the_same_instances_tried_again_are_no_new_evidence(values: np.ndarray, tries: int) -> None:
    averaged = np.stack([values] * tries).mean(0)
    assert mean_interval(averaged).low == pytest.approx(mean_interval(values).low, abs=1e-6)


def test_more_tries_of_each_instance_narrow_the_interval() -> None:
    random = np.random.default_rng(0)
    once = mean_interval(random.binomial(1, 0.5, 60) / 1)
    often = mean_interval(random.binomial(16, 0.5, 60) / 16)
    assert often.high - often.low < 0.5 * (once.high - once.low)


def test_the_interval_covers_the_truth_95_times_in_100_though_tries_of_an_instance_are_alike() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        chances = random.beta(0.6, 0.9, 50)  # instances differ much: a pooled interval would be far too narrow
        found = mean_interval(random.binomial(8, chances) / 8)
        covered += found.low <= 0.4 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize("values", [[], [1.2], [-0.1]])
def test_values_outside_the_unit_interval_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval(np.array(values, np.float64))


def test_golden_paired_difference() -> None:
    # differences 1, 0, 1, 0: mean 1/2, standard error sqrt(1/3) / 2
    found = paired_difference(np.zeros(4), np.array([1.0, 0.0, 1.0, 0.0]))
    assert found.mean == 0.5
    assert found.high - found.mean == pytest.approx(1.95996 * (1 / 3) ** 0.5 / 2, rel=1e-4)


def test_a_pair_needs_a_partner() -> None:
    with pytest.raises(ValueError, match="pairs"):
        paired_difference(np.zeros(1), np.zeros(1))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_clusters_of_one_change_nothing(values: list[float]) -> None:
    found = np.array(values, np.float64)
    alone, plain = clustered_interval(found, np.arange(len(values))), mean_interval(found)
    assert (alone.mean, alone.low, alone.high) == pytest.approx((plain.mean, plain.low, plain.high), abs=1e-6)


def test_values_that_are_alike_in_their_cluster_count_as_one() -> None:
    clusters = np.array([1, 0, 1, 0, 0, 1, 1, 0, 1, 0] * 3, np.float64)
    apart = clustered_interval(np.repeat(clusters, 5), np.repeat(np.arange(30), 5))
    one_each = mean_interval(clusters)
    assert (apart.low, apart.high) == pytest.approx((one_each.low, one_each.high), abs=1e-9)


def test_every_value_weighs_the_same_however_large_its_cluster() -> None:
    found = clustered_interval(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0, 0, 0, 1]))
    assert found.mean == 0.75
    assert found.low < 0.25  # two clusters say little


def test_clusters_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        clustered_interval(np.array([], np.float64), np.array([], np.int64))
