"""From a scored group to what each turn of its members was worth: estimators over rewards, applied to trajectories."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Float64

from cairn.algo.returns import discounted, group_in_group
from cairn.data.trajectory import ScoredGroup

GroupEstimator: TypeAlias = Callable[[Float32[np.ndarray, " G"]], Float32[np.ndarray, " G"]]
"""From the rewards of one group to the advantages of its members."""

AdvantageFn: TypeAlias = Callable[[ScoredGroup], list[Float64[np.ndarray, " _"]]]
"""From one group to the advantages of its members' turns."""


def by_trajectory(estimate: GroupEstimator) -> AdvantageFn:
    """Every turn of a trajectory is worth the same."""

    def advantages(group: ScoredGroup) -> list[Float64[np.ndarray, " _"]]:
        worth = estimate(group.rewards)
        return [
            np.full(len(member.trajectory.turns), own, np.float64)
            for member, own in zip(group.members, worth, strict=True)
        ]

    return advantages


def by_state(*, gamma: float, weight: float, scaled: bool = False, by_step: bool = False) -> AdvantageFn:
    """GiGPO (arXiv:2505.10978): besides its episode, a turn is compared with the group's other turns in that state.

    The state is the observation's digest: screenshots differ where nothing else does. `group_in_group` says what the
    options do.
    """

    def advantages(group: ScoredGroup) -> list[Float64[np.ndarray, " _"]]:
        turns = [member.trajectory.turns for member in group.members]
        rewards = group.rewards.astype(np.float64)
        return group_in_group(
            rewards,
            [_returns(len(own), float(reward), gamma=gamma) for own, reward in zip(turns, rewards, strict=True)],
            [[turn.observation.digest for turn in own] for own in turns],
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
