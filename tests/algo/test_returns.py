"""Advantages by step and by batch: golden numbers, and what must hold whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.returns import (
    against_greedy,
    discounted,
    generalised_advantage,
    group_in_group,
    whiten,
    with_outcome,
)

numbers = st.lists(st.floats(-5, 5), min_size=1, max_size=12).map(lambda v: np.array(v, np.float64))


@given(numbers)
def test_whitened_values_have_mean_zero_and_at_most_unit_variance(values: np.ndarray) -> None:
    scaled = whiten(values)
    assert abs(scaled.mean()) < 1e-6
    assert scaled.var() <= 1 + 1e-6


def test_only_the_masked_ones_are_whitened() -> None:
    mask = np.array([True, False, True])
    assert whiten(np.array([1.0, 100.0, 3.0]), mask) == pytest.approx([-1.0, 0.0, 1.0])
    assert (whiten(np.array([1.0]), np.array([False])) == 0).all()


def test_a_return_is_what_follows_discounted() -> None:
    assert discounted(np.array([0.0, 0.0, 1.0]), gamma=0.5) == pytest.approx([0.25, 0.5, 1.0])
    assert discounted(np.array([1.0, 2.0]), gamma=1.0) == pytest.approx([3.0, 2.0])


@given(numbers, st.floats(0, 1))
def test_without_values_and_with_lambda_one_gae_is_the_return(rewards: np.ndarray, gamma: float) -> None:
    everything = np.ones(rewards.shape, np.bool_)
    found = generalised_advantage(rewards, np.zeros_like(rewards), everything, gamma=gamma, lam=1.0)
    assert found == pytest.approx(discounted(rewards, gamma=gamma))


def test_gae_by_hand() -> None:
    everything = np.ones(2, np.bool_)
    found = generalised_advantage(np.array([0.0, 1.0]), np.array([0.5, 0.6]), everything, gamma=0.9, lam=0.5)
    last = 1.0 - 0.6
    assert found == pytest.approx([0.9 * 0.6 - 0.5 + 0.9 * 0.5 * last, last])


def test_what_the_policy_was_shown_is_passed_over() -> None:
    alone = generalised_advantage(np.array([0.0, 1.0]), np.array([0.5, 0.6]), np.ones(2, np.bool_), gamma=0.9, lam=0.5)
    among = generalised_advantage(
        np.array([0.0, 7.0, 1.0]), np.array([0.5, 9.0, 0.6]), np.array([True, False, True]), gamma=0.9, lam=0.5
    )
    assert among == pytest.approx([alone[0], 0.0, alone[1]])


def test_against_the_greedy_answer() -> None:
    for reward, worth in ((1.0, 0.75), (0.0, -0.25)):
        rewards = with_outcome(np.zeros(2), reward)
        assert against_greedy(rewards, greedy=0.25) == pytest.approx([worth, worth])
    assert against_greedy(np.array([-0.1, 1.0]), greedy=0.25, gamma=0.5) == pytest.approx([0.15, 0.75])


def test_a_trajectorys_outcome_comes_with_its_last_token_and_each_token_pays_for_itself() -> None:
    assert with_outcome(np.array([0.1, 0.2, -0.3]), 1.0) == pytest.approx([-0.1, -0.2, 1.3])
    assert with_outcome(np.empty(0), 1.0).shape == (0,)


REWARDS = np.array([1.0, 0.0])
RETURNS = [np.array([1.0, 1.0]), np.array([0.0, 0.0])]


def test_steps_are_compared_with_others_at_their_state() -> None:
    first, second = group_in_group(REWARDS, RETURNS, [["a", "b"], ["a", "c"]])
    assert first == pytest.approx([0.5 + 0.5, 0.5])  # b was met once: the episode alone counts
    assert second == pytest.approx([-0.5 - 0.5, -0.5])


def test_the_weight_of_steps_can_be_none() -> None:
    first, second = group_in_group(REWARDS, RETURNS, [["a", "b"], ["a", "c"]], weight=0.0)
    assert first == pytest.approx([0.5, 0.5])
    assert second == pytest.approx([-0.5, -0.5])


def test_long_episodes_weigh_more_where_every_step_counts() -> None:
    returns = [np.array([1.0]), np.array([0.0, 0.0, 0.0])]
    anchors = [["a"], ["b", "c", "d"]]
    assert group_in_group(REWARDS, returns, anchors)[0] == pytest.approx([0.5])
    assert group_in_group(REWARDS, returns, anchors, by_step=True)[0] == pytest.approx([0.75])


def test_episodes_are_compared_by_what_they_won_and_steps_by_what_was_left_to_win() -> None:
    first, second = group_in_group(REWARDS, [np.array([0.25, 0.5, 1.0]), np.array([0.0])], [["a", "b", "a"], ["c"]])
    assert first == pytest.approx([0.5 - 0.375, 0.5, 0.5 + 0.375])
    assert second == pytest.approx([-0.5])


def test_standard_deviations_scale_both_parts() -> None:
    first, _ = group_in_group(REWARDS, RETURNS, [["a", "b"], ["a", "c"]], scaled=True)
    assert first[1] == pytest.approx(0.5 / 0.70710678, rel=1e-4)
