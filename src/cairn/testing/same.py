"""Equality of records that hold arrays, for which `==` has no one answer."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cairn.data.trajectory import ScoredGroup, Trajectory, Turn


def same_groups(ones: Iterable[ScoredGroup], others: Iterable[ScoredGroup]) -> bool:
    """Whether both hold equal groups in the same order, bit for bit."""
    one, other = list(ones), list(others)
    return len(one) == len(other) and all(same_group(a, b) for a, b in zip(one, other, strict=True))


def same_group(one: ScoredGroup, other: ScoredGroup) -> bool:
    """Whether two groups are equal, bit for bit."""
    mine, theirs = (*one.members, *one.lost), (*other.members, *other.lost)
    return (
        one.plan == other.plan
        and (len(one.members), len(one.lost)) == (len(other.members), len(other.lost))
        and all(same_trajectory(a.trajectory, b.trajectory) for a, b in zip(mine, theirs, strict=True))
        and [(m.outcome, m.reward, m.terms) for m in one.members]
        == [(m.outcome, m.reward, m.terms) for m in other.members]
        and [(m.outcome, m.reason) for m in one.lost] == [(m.outcome, m.reason) for m in other.lost]
    )


def same_trajectory(one: Trajectory, other: Trajectory) -> bool:
    """Whether two trajectories are equal, bit for bit."""
    return (
        replace(one, turns=()) == replace(other, turns=())
        and len(one.turns) == len(other.turns)
        and all(_same_turn(a, b) for a, b in zip(one.turns, other.turns, strict=True))
    )


def _same_turn(one: Turn, other: Turn) -> bool:
    mine, theirs = one.completion, other.completion
    return (
        (one.observation, one.action, one.prompt.images, mine.truncated)
        == (other.observation, other.action, other.prompt.images, theirs.truncated)
        and _same_array(one.prompt.token_ids, other.prompt.token_ids)
        and _same_array(mine.token_ids, theirs.token_ids)
        and _same_array(mine.logprobs, theirs.logprobs)
        and _same_array(mine.versions, theirs.versions)
    )


def _same_array(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
