"""Golden numbers are worked by hand; properties hold for every group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.advantages import group_relative, leave_one_out, scale_negative, success_scale

GROUPS = st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=32).map(lambda xs: np.array(xs, np.float32))
ESTIMATORS = [
    lambda r: group_relative(r, scale="std"),
    lambda r: group_relative(r, scale="population"),
    lambda r: group_relative(r, scale="none"),
    leave_one_out,
]


def group(ones: int, zeros: int) -> np.ndarray:
    return np.array([1.0] * ones + [0.0] * zeros, np.float32)


@pytest.mark.parametrize(
    ("ones", "zeros", "scale", "up", "down"),
    [
        (1, 7, "std", 2.4749, -0.3536),
        (4, 4, "std", 0.9354, -0.9354),
        (1, 1, "std", 0.7071, -0.7071),
        (1, 3, "std", 1.5, -0.5),
        (1, 7, "population", 2.6458, -0.3780),
        (4, 4, "population", 1.0, -1.0),
        (1, 1, "population", 1.0, -1.0),
        (1, 3, "population", 1.7321, -0.5774),
        (1, 3, "none", 0.75, -0.25),
    ],
)
def test_golden_group_relative(ones, zeros, scale, up, down) -> None:
    got = group_relative(group(ones, zeros), scale=scale)
    np.testing.assert_allclose(got, [up] * ones + [down] * zeros, atol=1e-4)


@pytest.mark.parametrize(("ones", "zeros", "up", "down"), [(1, 7, 1, -1 / 7), (1, 1, 1, -1), (1, 3, 1, -1 / 3)])
def test_golden_leave_one_out(ones, zeros, up, down) -> None:
    np.testing.assert_allclose(leave_one_out(group(ones, zeros)), [up] * ones + [down] * zeros, atol=1e-6)


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_a_group_of_one_is_refused(estimate) -> None:
    with pytest.raises(ValueError, match="group of one"):
        estimate(group(1, 0))


@pytest.mark.parametrize("estimate", ESTIMATORS)
@given(value=st.floats(-10, 10, width=32), size=st.integers(2, 32))
def test_siblings_that_agree_have_no_advantage_at_all(estimate, value, size) -> None:
    assert (estimate(np.full(size, value, np.float32)) == 0).all()


@pytest.mark.parametrize("estimate", ESTIMATORS)
@given(rewards=GROUPS, shift=st.floats(-5, 5, width=32))
def test_a_constant_added_to_every_reward_changes_nothing(estimate, rewards, shift) -> None:
    spread = float(rewards.std())
    if spread < 1e-2:  # where siblings all but agree, rounding is the signal
        return
    np.testing.assert_allclose(estimate(rewards + np.float32(shift)), estimate(rewards), atol=1e-4 / min(spread, 1))


@pytest.mark.parametrize("estimate", ESTIMATORS)
@given(rewards=GROUPS, seed=st.integers(0, 99))
def test_the_order_of_siblings_does_not_matter(estimate, rewards, seed) -> None:
    order = np.random.default_rng(seed).permutation(len(rewards))
    np.testing.assert_allclose(estimate(rewards)[order], estimate(rewards[order]), atol=1e-4)


@pytest.mark.parametrize("estimate", ESTIMATORS)
@given(rewards=GROUPS)
def test_advantages_sum_to_zero_and_keep_the_order_of_rewards(estimate, rewards) -> None:
    got = estimate(rewards)
    assert abs(float(got.sum())) <= 1e-3 * max(1.0, float(np.abs(got).sum()))
    assert (np.diff(got[np.argsort(rewards, kind="stable")]) >= -1e-6).all()


@given(rewards=GROUPS)
def test_leave_one_out_equals_its_definition(rewards) -> None:
    others = np.array([np.delete(rewards.astype(np.float64), i).mean() for i in range(len(rewards))])
    np.testing.assert_allclose(leave_one_out(rewards), rewards - others, atol=1e-4)


@given(rewards=GROUPS, factor=st.floats(0.5, 4))
def test_standardised_advantages_do_not_depend_on_the_unit_of_reward(rewards, factor) -> None:
    if rewards.std() < 1e-1:
        return
    np.testing.assert_allclose(group_relative(rewards * np.float32(factor)), group_relative(rewards), atol=1e-3)


def test_golden_scaled_negatives() -> None:
    # failures push half as hard, successes pull as before
    got = scale_negative(np.array([1.5, -0.5, -0.5, 0.0], np.float32), scale=0.5)
    np.testing.assert_array_equal(got, np.array([1.5, -0.25, -0.25, 0.0], np.float32))
    assert got.dtype == np.float32


@given(rewards=GROUPS)
def test_a_scale_of_one_changes_nothing_and_of_zero_leaves_the_successes(rewards) -> None:
    advantages = leave_one_out(rewards)
    np.testing.assert_array_equal(scale_negative(advantages, scale=1.0), advantages)
    np.testing.assert_array_equal(scale_negative(advantages, scale=0.0), np.maximum(advantages, 0))


@pytest.mark.parametrize(
    ("rate", "least", "slope", "scale"),
    [(0.0, 0.2, 1.0, 0.2), (0.5, 0.2, 1.0, 0.7), (1.0, 0.2, 1.0, 1.0), (0.9, 0.5, 0.0, 0.5), (0.25, 1.0, 3.0, 1.0)],
)
def test_golden_scale_of_failures_by_success(rate: float, least: float, slope: float, scale: float) -> None:
    assert success_scale(rate, least=least, slope=slope) == pytest.approx(scale)
