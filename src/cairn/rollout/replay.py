"""Success replay (ARPO, arXiv:2505.16282): a group that failed altogether is given a stored success to learn from."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from cairn.data.ids import GroupId, TaskId
from cairn.data.task import Root
from cairn.data.trajectory import RULES, Outcome, ScoredGroup, ScoredTrajectory
from cairn.errors import ConfigError


class Trigger(StrEnum):
    """When a group is given a stored success."""

    ALL_FAILED = "all_failed"  # no member succeeded: the paper
    THRESHOLDS = "thresholds"  # the members' scores have std < 0.05 and mean < 0.2: the released code


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """`capacity` successes of each task are kept, the oldest leaving first; 0 turns replay off altogether."""

    capacity: int = 8
    trigger: Trigger = Trigger.ALL_FAILED
    first: bool = False  # the code replaces the first member; else one drawn from those that failed

    def __post_init__(self) -> None:
        if self.capacity < 0:
            raise ConfigError(f"a replay buffer holds at least 0 successes, got {self.capacity}")


PAPER = ReplayOptions()
CODE = ReplayOptions(trigger=Trigger.THRESHOLDS, first=True)

_Key = tuple[GroupId, int, int]


class SuccessReplay:
    """Stored successes by task. Only whole episodes count: siblings must have begun in the same state.

    A stored success keeps the log-probabilities of the policy that played it, so that the learner can correct for it.
    """

    def __init__(self, *, options: ReplayOptions, seed: int) -> None:
        self._options = options
        self._rng = np.random.default_rng(seed)
        self._kept: defaultdict[TaskId, deque[ScoredTrajectory]] = defaultdict(
            lambda: deque(maxlen=self._options.capacity)
        )

    def __call__(self, groups: Sequence[ScoredGroup]) -> tuple[ScoredGroup, ...]:
        """The groups, those that failed altogether with a stored success; then this round's successes are stored."""
        if not self._options.capacity:
            return tuple(groups)
        replaced = tuple(self._helped(group) for group in groups)
        for group in groups:
            self._store(group)
        return replaced

    def remember(self, group: ScoredGroup) -> None:
        """Store the successes of a group that an earlier process recorded."""
        if self._options.capacity:
            self._store(group)

    def stored(self, task: TaskId) -> int:
        """How many successes of a task are kept."""
        return len(self._kept[task])

    def _helped(self, group: ScoredGroup) -> ScoredGroup:
        kept = self._kept.get(group.plan.task.id)
        if not kept or not isinstance(group.plan.start, Root) or not self._failed(group):
            return group
        place = 0 if self._options.first else int(self._rng.integers(len(group.members)))
        success = kept[int(self._rng.integers(len(kept)))]
        members = list(group.members)
        members[place] = replace(success, trajectory=replace(success.trajectory, plan=group.plan))
        return replace(group, members=tuple(members))

    def _failed(self, group: ScoredGroup) -> bool:
        scores = np.array([m.outcome is Outcome.SUCCESS for m in group.members], np.float64)
        if not scores.size:
            return False
        if self._options.trigger is Trigger.THRESHOLDS:
            return bool(scores.std() < 0.05 and scores.mean() < 0.2)
        return not scores.any()

    def _store(self, group: ScoredGroup) -> None:
        if not isinstance(group.plan.start, Root):
            return
        kept = self._kept[group.plan.task.id]
        known = {_key(m) for m in kept}
        for member in group.members:
            if member.outcome is Outcome.SUCCESS and RULES[member.outcome].in_loss and _key(member) not in known:
                kept.append(member)


def _key(member: ScoredTrajectory) -> _Key:
    trajectory = member.trajectory
    return trajectory.plan.group_id, trajectory.sibling, trajectory.attempt
