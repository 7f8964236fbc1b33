"""What each turn was worth, and that its own tokens get it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from cairn.algo.advantages import group_relative, leave_one_out
from cairn.data.sample import Aggregation
from cairn.data.trajectory import ScoredGroup, ScoredTrajectory, Turn
from cairn.rollout.estimators import AdvantageFn, by_state, by_trajectory
from cairn.rollout.samples import Credited, Crediting, credit
from rollout.test_samples import group, histories, member, rounds, turn


def seen(digests: str, reward: float) -> ScoredTrajectory:
    """A trajectory through the states that the letters name; turn i answers 10 i + 1 and 10 i + 2."""
    turns = [turn([5, 10 * i], [10 * i + 1, 10 * i + 2]) for i in range(len(digests))]
    there = zip(turns, digests, strict=True)
    return member([replace(t, observation=replace(t.observation, digest=d)) for t, d in there], reward)


def worth_of_tokens(groups: Sequence[ScoredGroup], advantages: AdvantageFn, *, whitened: bool = False) -> Credited:
    return credit(
        groups, Crediting(advantages=advantages, aggregation=Aggregation.SEQ_MEAN_TOKEN_SUM, whitened=whitened)
    )


def test_every_turn_of_a_trajectory_is_worth_the_same() -> None:
    found = by_trajectory(leave_one_out)(group(seen("abc", 1.0), seen("a", 0.0)))
    assert [own.tolist() for own in found if own is not None] == [[1.0, 1.0, 1.0], [-1.0]]


def test_a_turn_is_also_compared_with_the_others_in_its_state() -> None:
    found = by_state(gamma=0.5, weight=2.0)(group(seen("ab", 1.0), seen("acb", 0.0)))
    assert found[0] == pytest.approx([0.5 + 2 * 0.25, 0.5 + 2 * 0.5])
    assert found[1] == pytest.approx([-0.5 - 2 * 0.25, -0.5, -0.5 - 2 * 0.5])


def test_by_step_and_scaled_reach_the_estimator() -> None:
    told = group(seen("a", 1.0), seen("bcd", 0.0))
    assert by_state(gamma=1.0, weight=0.0, by_step=True)(told)[0] == pytest.approx([0.75])
    assert by_state(gamma=1.0, weight=0.0, scaled=True)(told)[0] == pytest.approx([0.5 / 0.70710678], rel=1e-4)


def test_each_turns_tokens_get_its_own_advantage() -> None:
    def advantages(found: ScoredGroup) -> list[np.ndarray]:
        return [np.array([1.0, -2.0]), np.array([3.0])]

    history = [
        turn([5], [1, 2]),
        turn([5, 1, 2, 9], [3]),
    ]  # one sample: a prompt that goes on from an answer
    batch = worth_of_tokens([group(member(history, 1.0), member([turn([7], [4])], 0.0))], advantages).batch
    assert batch is not None
    merged, other = batch.samples
    assert (merged.positive * 2).tolist() == [0, 1, 1, 0, 0]
    assert (merged.negative * 2).tolist() == [0, 0, 0, 0, -2]
    assert (other.positive * 2).tolist() == [0, 3]


@given(rounds())
def test_whitened_advantages_of_all_tokens_have_mean_zero_and_variance_one(groups: list[ScoredGroup]) -> None:
    found = worth_of_tokens(groups, by_trajectory(lambda rewards: group_relative(rewards, scale="none")), whitened=True)
    if found.batch is None:
        return
    total = sum(float((one.positive + one.negative).sum()) for one in found.batch.samples)
    assert total == pytest.approx(0.0, abs=1e-4)
    apart = [a for g in found.used for a in whitened_alone(g, found.used)]
    assert np.mean(np.square(apart)) == pytest.approx(1.0, rel=1e-4)
    positive = sum(float(one.positive.sum()) for one in found.batch.samples)
    weight = sum(float(one.weights.sum()) for one in found.batch.samples) / len(apart)
    assert positive == pytest.approx(weight * sum(a for a in apart if a > 0), rel=1e-3)


def whitened_alone(one: ScoredGroup, used: Sequence[ScoredGroup]) -> list[float]:
    """The definition, token by token."""

    def tokens(found: ScoredGroup) -> list[float]:
        centred = found.rewards - found.rewards.mean()
        pairs = zip(found.members, centred, strict=True)
        return [float(a) for m, a in pairs for t in m.trajectory.turns for _ in t.completion.token_ids]

    everything = np.array([a for found in used for a in tokens(found)])
    return [(a - everything.mean()) / np.sqrt(everything.var() + 1e-8) for a in tokens(one)]


@given(histories())
def test_a_trajectory_without_turns_harms_nobody(turns: list[Turn]) -> None:
    both = [group(member(turns, 1.0), member(turns[:1], 0.0), member([], 0.0))]
    assert worth_of_tokens(both, by_state(gamma=0.9, weight=1.0)).batch is not None
    assert worth_of_tokens(both, by_trajectory(leave_one_out), whitened=True).batch is not None
