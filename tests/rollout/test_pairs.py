"""Which trajectories of a group are compared."""

import pytest

from cairn.data.sample import Sample
from cairn.data.trajectory import ScoredTrajectory
from cairn.rollout.pairs import pairs_of
from rollout.test_samples import group, member, turn


def said(*answers: int, reward: float) -> ScoredTrajectory:
    """A trajectory whose turns have answered those ids, each after a prompt of its own."""
    return member([turn([5, 100 + i], [answer]) for i, answer in enumerate(answers)], reward)


def answers(samples: tuple[Sample, ...]) -> list[int]:
    return [int(sample.token_ids[-1]) for sample in samples]


def compared(*members: ScoredTrajectory, limit: int = 9) -> list[tuple[list[int], list[int]]]:
    return [(answers(pair.chosen), answers(pair.rejected)) for pair in pairs_of([group(*members)], limit=limit)]


def test_the_best_are_preferred_to_the_worst_each_of_the_more_frequent_once() -> None:
    found = compared(said(1, 2, reward=1.0), said(3, reward=0.0), said(4, 5, reward=0.0), said(6, reward=0.5))
    assert found == [([1, 2], [3]), ([1, 2], [4, 5])]
    found = compared(said(1, reward=1.0), said(2, reward=1.0), said(3, reward=0.0))
    assert found == [([1], [3]), ([2], [3])]


def test_siblings_that_said_the_same_count_once() -> None:
    assert compared(said(1, reward=1.0), said(1, reward=1.0), said(3, reward=0.0), said(3, reward=0.0)) == [([1], [3])]


@pytest.mark.parametrize("limit", [1, 2])
def test_a_group_gives_no_more_than_the_limit(limit: int) -> None:
    members = [said(i, reward=float(i > 3)) for i in range(1, 8)]
    both = [group(*members), group(*members, name="h")]
    assert len(pairs_of(both, limit=limit)) == 2 * limit
    assert pairs_of(both, limit=0) == ()


def test_without_a_difference_there_is_nothing_to_prefer() -> None:
    assert compared(said(1, reward=1.0), said(2, reward=1.0)) == []


def test_a_trajectory_without_turns_says_nothing() -> None:
    assert compared(said(1, reward=1.0), member([], 0.0)) == []
