"""From scored groups to what their turns and tokens were worth: estimators over rewards, applied to trajectories."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Float64

from cairn.algo.advantages import scale_negative, success_scale
from cairn.algo.returns import against_greedy, discounted, generalised_advantage, group_in_group, with_outcome
from cairn.data.observation import Observation
from cairn.data.sample import NoGradient
from cairn.data.trajectory import Outcome, ScoredGroup, ScoredTrajectory

GroupEstimator: TypeAlias = Callable[[Float32[np.ndarray, " G"]], Float32[np.ndarray, " G"]]
"""From the rewards of one group to the advantages of its members."""

AdvantageFn: TypeAlias = Callable[[ScoredGroup], Sequence[Float64[np.ndarray, " _"] | None]]
"""From one group to the advantages of its members' turns; None: nothing is learned from the member."""

Anchors: TypeAlias = Callable[[Sequence[Observation]], Sequence[Hashable]]
"""Which of a group's observations show the same state: equal ones for those that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraised:
    """What a learner said of the T tokens that were sampled in one trajectory, in their order."""

    costs: Float64[np.ndarray, " T"]  # the KL to the reference, times its weight in the reward
    values: Float64[np.ndarray, " T"]  # of a critic


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What each of the T tokens sampled in one trajectory was worth."""

    advantages: Float64[np.ndarray, " T"]
    returns: Float64[np.ndarray, " T"] | None = None  # for a critic to learn


TokenFn: TypeAlias = Callable[[ScoredTrajectory, Appraised, float | None], Worth]
"""From a trajectory, what the learner said of it, and the reward of its group's greedy rollout."""

Idle: TypeAlias = Callable[[ScoredGroup], NoGradient | None]
"""Why a group teaches nothing; None where it does."""


# ── whole turns ───────────────────────────────────────────────────────────────


def by_trajectory(estimate: GroupEstimator) -> AdvantageFn:
    """Every turn of a trajectory is worth the same."""

    def advantages(group: ScoredGroup) -> list[Float64[np.ndarray, " _"]]:
        worth = estimate(group.rewards)
        return [
            np.full(len(member.trajectory.turns), own, np.float64)
            for member, own in zip(group.members, worth, strict=True)
        ]

    return advantages


def by_structure(seen: Sequence[Observation]) -> Sequence[Hashable]:
    """States are equal where their structure is: screenshots differ where nothing else does."""
    return [observation.digest for observation in seen]


def by_state(
    *, gamma: float, weight: float, scaled: bool = False, by_step: bool = False, anchors: Anchors = by_structure
) -> AdvantageFn:
    """GiGPO (arXiv:2505.10978): besides its episode, a turn is compared with the group's other turns in that state.

    `group_in_group` says what the options do.
    """

    def advantages(group: ScoredGroup) -> list[Float64[np.ndarray, " _"]]:
        turns = [member.trajectory.turns for member in group.members]
        rewards = group.rewards.astype(np.float64)
        ends = np.cumsum([0, *(len(own) for own in turns)])
        places = anchors([turn.observation for own in turns for turn in own])
        return group_in_group(
            rewards,
            [_returns(len(own), float(reward), gamma=gamma) for own, reward in zip(turns, rewards, strict=True)],
            [places[ends[i] : ends[i + 1]] for i in range(len(turns))],
            weight=weight,
            scaled=scaled,
            by_step=by_step,
        )

    return advantages


def _returns(turns: int, reward: float, *, gamma: float) -> Float64[np.ndarray, " _"]:
    """Of each turn, where the reward comes with the last one."""
    given = np.zeros(turns)
    given[-1:] = reward
    return discounted(given, gamma=gamma)


def failures_less(estimate: AdvantageFn, *, least: float, slope: float) -> AdvantageFn:
    """Negative advantages count min(least + slope x the group's success, 1) (GUI-Libra, arXiv:2602.22190)."""

    def advantages(group: ScoredGroup) -> list[Float64[np.ndarray, " _"] | None]:
        solved = [member.outcome is Outcome.SUCCESS for member in group.members]
        scale = success_scale(sum(solved) / len(solved), least=least, slope=slope)
        return [None if own is None else scale_negative(own, scale=scale) for own in estimate(group)]

    return advantages


def successes(*, limit: int | None) -> AdvantageFn:
    """Rejection sampling (RFT): what succeeded is worth 1, and nothing is learned from the rest.

    Of successes that did the same, the first counts; `limit` is how many there may be of a group.
    """

    def advantages(group: ScoredGroup) -> list[Float64[np.ndarray, " _"] | None]:
        known: set[tuple[Hashable, ...]] = set()
        found: list[Float64[np.ndarray, " _"] | None] = []
        for member in group.members:
            done = tuple(turn.action for turn in member.trajectory.turns)
            fresh = member.outcome is Outcome.SUCCESS and done not in known and (limit is None or len(known) < limit)
            if fresh:
                known.add(done)
            found.append(np.ones(len(done)) if fresh else None)
        return found

    return advantages


def without_costs(group: ScoredGroup, appraised: Sequence[Appraised]) -> ScoredGroup:
    """The group with each trajectory's costs taken from its reward, for estimators of whole trajectories."""
    members = [
        replace(member, reward=member.reward - float(own.costs.sum()), terms=())
        for member, own in zip(group.members, appraised, strict=True)
    ]
    return replace(group, members=tuple(members))


# ── tokens ────────────────────────────────────────────────────────────────────


def to_the_end(*, gamma: float) -> TokenFn:
    """REINFORCE++ (arXiv:2501.03262): what follows each token, to be whitened over the batch; no baseline."""

    def worth(member: ScoredTrajectory, appraised: Appraised, greedy: float | None) -> Worth:
        del greedy
        return Worth(advantages=discounted(with_outcome(appraised.costs, member.reward), gamma=gamma))

    return worth


def beside_greedy(*, gamma: float) -> TokenFn:
    """ReMax (arXiv:2310.10505): what follows each token, against the reward of the greedy rollout."""

    def worth(member: ScoredTrajectory, appraised: Appraised, greedy: float | None) -> Worth:
        if greedy is None:
            raise ValueError("ReMax compares with a greedy rollout, and this group has none")
        rewards = with_outcome(appraised.costs, member.reward)
        return Worth(advantages=against_greedy(rewards, greedy=greedy, gamma=gamma))

    return worth


def beside_critic(*, gamma: float, lam: float) -> TokenFn:
    """GAE (arXiv:1506.02438) over a trajectory's sampled tokens, and the returns that the critic is to learn."""

    def worth(member: ScoredTrajectory, appraised: Appraised, greedy: float | None) -> Worth:
        del greedy
        rewards = with_outcome(appraised.costs, member.reward)
        every = np.ones(rewards.shape, np.bool_)
        found = generalised_advantage(rewards, appraised.values, every, gamma=gamma, lam=lam)
        return Worth(advantages=found, returns=found + appraised.values)

    return worth


# ── groups that teach nothing ─────────────────────────────────────────────────


def no_gradient(group: ScoredGroup) -> NoGradient | None:
    """Why a group whose members are compared teaches nothing; None where it does."""
    if len(group.members) < 2:
        return NoGradient.TOO_SMALL
    return _all_alike(group) if np.ptp(group.rewards) == 0 else None


def nobody_left(group: ScoredGroup) -> NoGradient | None:
    """Of estimators that compare no siblings: a single member is enough."""
    return None if group.members else NoGradient.TOO_SMALL


def not_beside_greedy(group: ScoredGroup) -> NoGradient | None:
    """Of ReMax: no member did better or worse than the greedy rollout."""
    if not group.members:
        return NoGradient.TOO_SMALL
    if group.greedy is None:
        return NoGradient.NO_BASELINE
    return _all_alike(group) if (group.rewards == np.float32(group.greedy)).all() else None


def no_success(group: ScoredGroup) -> NoGradient | None:
    """Of rejection sampling: nobody succeeded."""
    if not group.members:
        return NoGradient.TOO_SMALL
    return None if any(m.outcome is Outcome.SUCCESS for m in group.members) else NoGradient.ALL_FAILED


def _all_alike(group: ScoredGroup) -> NoGradient:
    solved = sum(member.outcome is Outcome.SUCCESS for member in group.members)
    if solved == len(group.members):
        return NoGradient.ALL_SOLVED
    return NoGradient.EQUAL_REWARDS if solved else NoGradient.ALL_FAILED
