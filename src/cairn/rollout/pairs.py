"""Scored groups -> pairs of trajectories of which one is to be preferred."""

from collections.abc import Sequence
from itertools import cycle, islice

from cairn.data.sample import Preference, Sample
from cairn.data.trajectory import ScoredGroup, ScoredTrajectory
from cairn.rollout.samples import samples_of


def pairs_of(groups: Sequence[ScoredGroup], *, limit: int) -> tuple[Preference, ...]:
    """At most `limit` pairs of each group, of its best and its worst: success and failure, or match and mismatch.

    Siblings that said the same count once. A group whose rewards agree gives none.
    """
    return tuple(pair for group in groups for pair in islice(_pairs(group), limit))


def _pairs(group: ScoredGroup) -> list[Preference]:
    members = [member for member in group.members if member.trajectory.turns]
    rewards = {member.reward for member in members}
    if len(rewards) < 2:
        return []
    best = _different([m for m in members if m.reward == max(rewards)])
    worst = _different([m for m in members if m.reward == min(rewards)])
    shorter, longer = sorted((best, worst), key=len)
    matched = zip(cycle(shorter), longer, strict=False)
    return [
        Preference(chosen=one, rejected=other) if shorter is best else Preference(chosen=other, rejected=one)
        for one, other in matched
    ]


def _different(members: Sequence[ScoredTrajectory]) -> list[tuple[Sample, ...]]:
    found: dict[tuple[bytes, ...], tuple[Sample, ...]] = {}
    for member in members:
        samples = samples_of(member.trajectory)
        found.setdefault(tuple(sample.token_ids.tobytes() for sample in samples), samples)
    return list(found.values())
