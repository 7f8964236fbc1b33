"""Estimators that tell tokens apart, or take only some members; against definitions written token by token."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cairn.algo.advantages import group_relative
from cairn.data.action import Wait
from cairn.data.sample import Aggregation, Appraisal, NoGradient, Sample
from cairn.data.trajectory import Outcome, ScoredGroup, ScoredTrajectory
from cairn.errors import InvariantError
from cairn.rollout.estimators import (
    TokenFn,
    beside_critic,
    beside_greedy,
    by_trajectory,
    failures_less,
    no_success,
    nobody_left,
    successes,
    to_the_end,
)
from cairn.rollout.samples import Credited, Crediting, credit, samples_of
from rollout.test_samples import group, member, rounds, turn

CENTRED = by_trajectory(lambda rewards: group_relative(rewards, scale="none"))
SUM = Aggregation.SEQ_MEAN_TOKEN_SUM


def said(samples: Sequence[Sample]) -> list[Appraisal]:
    """A KL and a value that follow from a token's id alone."""
    return [
        Appraisal(
            divergence=np.where(one.loss_mask, kl_of(one.token_ids), 0).astype(np.float32),
            values=np.where(one.loss_mask, value_of(one.token_ids), 0).astype(np.float32),
        )
        for one in samples
    ]


def kl_of(ids: np.ndarray) -> np.ndarray:
    return np.cos(ids.astype(np.float64)) / 4


def value_of(ids: np.ndarray) -> np.ndarray:
    return np.sin(ids.astype(np.float64))


def sampled(one: ScoredTrajectory) -> np.ndarray:
    """The ids of a trajectory's sampled tokens, in order."""
    return np.concatenate([t.completion.token_ids for t in one.trajectory.turns])


def by_token(tokens: TokenFn, **more: object) -> Crediting:
    plain = Crediting(advantages=CENTRED, aggregation=SUM, tokens=tokens, idle=nobody_left, appraised=True, kl=0.5)
    return replace(plain, **more)


def worth(found: Credited) -> np.ndarray:
    """Advantages of a batch in which nothing was merged, sample after sample."""
    assert found.batch is not None
    return np.concatenate(
        [(s.positive + s.negative)[s.sample.loss_mask] * found.sequences for s in found.batch.samples]
    )


HISTORY = [turn([50], [1, 2]), turn([50, 1, 2, 51], [3]), turn([60], [4, 5])]
"""Two samples: the second turn goes on from the first."""


def test_reinforce_pp_pays_the_kl_token_by_token_and_the_outcome_at_the_end() -> None:
    found = credit([group(member(HISTORY, 1.0))], by_token(to_the_end(gamma=0.9)), appraise=said)
    follows, expected = 1.0, []
    for token in (5, 4, 3, 2, 1):
        follows = follows - 0.5 * np.cos(token) / 4 if token == 5 else 0.9 * follows - 0.5 * np.cos(token) / 4
        expected.insert(0, follows)
    assert worth(found) == pytest.approx(expected, rel=1e-5)


def test_remax_takes_the_greedy_reward_from_every_tokens_return() -> None:
    beside = replace(group(member(HISTORY, 1.0)), greedy=0.25)
    found = credit([beside], by_token(beside_greedy(gamma=1.0), kl=0.0, appraised=False))
    assert worth(found) == pytest.approx([0.75] * 5)


def naive_gae(one: ScoredTrajectory, *, gamma: float, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Advantage and return of each token as sums over all later ones."""
    ids = sampled(one)
    rewards, values = -0.5 * kl_of(ids), value_of(ids)
    rewards[-1] += one.reward
    deltas = rewards + gamma * np.append(values[1:], 0.0) - values
    size = len(ids)
    advantages = np.array([sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, size)) for t in range(size)])
    return advantages, advantages + values


def test_gae_skips_what_was_shown_and_tells_the_critic_what_came() -> None:
    one = member(HISTORY, 1.0)
    found = credit([group(one)], by_token(beside_critic(gamma=0.9, lam=0.8)), appraise=said)
    advantages, returns = naive_gae(one, gamma=0.9, lam=0.8)
    assert worth(found) == pytest.approx(advantages, rel=1e-5)
    assert found.batch is not None
    targets = [(s.critic, s.sample) for s in found.batch.samples]
    told = np.concatenate([own.returns[s.loss_mask] for own, s in targets if own is not None])
    known = np.concatenate([own.values[s.loss_mask] for own, s in targets if own is not None])
    assert told == pytest.approx(returns, rel=1e-5)
    assert known == pytest.approx(value_of(np.arange(1, 6)), rel=1e-5)
    assert all(not own.returns[~s.loss_mask].any() for own, s in targets if own is not None)


@settings(max_examples=25)
@given(groups=rounds())
def test_gae_of_a_round_is_that_of_its_trajectories_whitened_over_all_tokens(groups: list[ScoredGroup]) -> None:
    plain = credit(groups, by_token(beside_critic(gamma=1.0, lam=0.5)), appraise=said)
    white = credit(groups, by_token(beside_critic(gamma=1.0, lam=0.5), whitened=True), appraise=said)
    alone = [naive_gae(m, gamma=1.0, lam=0.5) for g in groups for m in g.members]
    if not alone:
        assert plain.batch is None
        return
    every = np.concatenate([a for a, _ in alone])
    assert worth(plain) == pytest.approx(every, abs=1e-4)
    assert worth(white) == pytest.approx((every - every.mean()) / np.sqrt(every.var() + 1e-8), abs=1e-3)
    assert white.batch is not None
    for one, other in zip((plain.batch or white.batch).samples, white.batch.samples, strict=True):
        assert one.critic is not None
        assert other.critic is not None
        np.testing.assert_array_equal(one.critic.returns, other.critic.returns)  # from before whitening


def test_equal_samples_with_different_returns_are_not_merged() -> None:
    same = [turn([1], [2])]
    found = credit(
        [group(member(same, 1.0), member(same, 0.0))], by_token(beside_critic(gamma=1.0, lam=1.0)), appraise=said
    )
    assert found.batch is not None
    assert len(found.batch.samples) == 2


def test_the_learner_is_asked_once_for_every_different_sample() -> None:
    asked: list[int] = []

    def counting(samples: Sequence[Sample]) -> list[Appraisal]:
        asked.append(len(samples))
        return said(samples)

    groups = [group(member([turn([1], [2])], 1.0), member([turn([1], [2])], 0.0), member([turn([1], [3])], 0.0))]
    credit(groups, by_token(to_the_end(gamma=1.0)), appraise=counting)
    assert asked == [2]


def test_an_estimator_that_needs_a_learner_says_so() -> None:
    with pytest.raises(InvariantError, match="needs a learner's word"):
        credit([group(member(HISTORY, 1.0))], by_token(to_the_end(gamma=1.0)))


def test_for_whole_trajectories_the_kl_in_the_reward_is_the_sum_over_their_tokens() -> None:
    one, other = member([turn([9], [1, 2])], 1.0), member([turn([9], [3])], 0.0)
    crediting = Crediting(advantages=CENTRED, aggregation=SUM, kl=0.5, appraised=True)
    found = credit([group(one, other)], crediting, appraise=said)
    rewards = [1 - 0.5 * (np.cos(1) + np.cos(2)) / 4, -0.5 * np.cos(3) / 4]
    half = (rewards[0] - rewards[1]) / 2
    assert worth(found) == pytest.approx([half, half, -half], rel=1e-5)


# ── rejection sampling ────────────────────────────────────────────────────────


RFT = Crediting(advantages=successes(limit=None), aggregation=Aggregation.TOKEN_MEAN, idle=no_success)


def did(*, seconds: float, token: int, reward: float) -> ScoredTrajectory:
    return member([replace(turn([9], [token, 7]), action=Wait(seconds))], reward)


def test_rejection_sampling_imitates_different_successes_and_nothing_else() -> None:
    tries = group(
        did(seconds=1.0, token=1, reward=1.0),
        did(seconds=1.0, token=2, reward=1.0),  # says it in another way, and does the same
        did(seconds=2.0, token=3, reward=1.0),
        did(seconds=3.0, token=4, reward=0.0),
    )
    found = credit([tries], RFT)
    assert found.batch is not None
    assert [s.sample.token_ids.tolist() for s in found.batch.samples] == [[9, 1, 7], [9, 3, 7]]
    for one in found.batch.samples:
        assert one.positive.tolist() == one.weights.tolist() == [0, 0.25, 0.25]
        assert not one.negative.any()


def test_rejection_sampling_learns_from_a_group_that_solved_it_altogether_but_not_from_one_that_failed() -> None:
    solved = group(did(seconds=1.0, token=1, reward=1.0), did(seconds=2.0, token=2, reward=1.0), name="solved")
    failed = group(did(seconds=1.0, token=1, reward=0.5), name="failed")
    found = credit([solved, failed], replace(RFT, advantages=successes(limit=1)))
    assert found.batch is not None
    assert (len(found.batch.samples), found.used) == (1, (solved,))
    assert [d.why for d in found.dropped] == [NoGradient.ALL_FAILED]
    assert credit([failed], RFT).batch is None


# ── whole groups ──────────────────────────────────────────────────────────────


def test_gpg_counts_trajectories_with_an_advantage_for_those_without() -> None:
    tries = group(*[member([turn([i], [7])], reward) for i, reward in enumerate((1.0, 0.0, 0.5, 0.5), 1)])
    plain = credit([tries], Crediting(advantages=CENTRED, aggregation=SUM))
    found = credit([tries], Crediting(advantages=CENTRED, aggregation=SUM, effective=True))
    assert worth(plain) == pytest.approx([0.5, -0.5, 0.0, 0.0])
    assert worth(found) == pytest.approx([1.0, -1.0, 0.0, 0.0])


def test_failures_count_by_their_groups_success() -> None:
    estimate = failures_less(CENTRED, least=0.2, slope=1.0)
    tries = [member([turn([i], [7])], reward) for i, reward in enumerate((1.0, 0.0, 0.0, 0.0), 1)]
    own = [float(a[0]) for a in estimate(group(*tries)) if a is not None]
    assert own == pytest.approx([0.75, *[-0.25 * 0.45] * 3])
    half = replace(tries[0], reward=0.9, outcome=Outcome.FAILURE)
    own = [float(a[0]) for a in estimate(group(half, *tries[1:])) if a is not None]
    assert own == pytest.approx([0.675, *[-0.225 * 0.2] * 3])


def test_a_trajectory_without_turns_harms_no_estimator() -> None:
    for tokens in (to_the_end(gamma=1.0), beside_critic(gamma=1.0, lam=1.0), beside_greedy(gamma=1.0)):
        tries = replace(group(member(HISTORY, 1.0), member([], 0.0)), greedy=0.5)
        assert credit([tries], by_token(tokens), appraise=said).batch is not None
    assert samples_of(member([], 0.0).trajectory) == ()
