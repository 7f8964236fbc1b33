"""Groups that a run has stored, to be learned from again: by other methods, without playing anything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cairn.data.ids import GroupId, TaskId
from cairn.data.task import Purpose, RolloutPlan, Split, Start
from cairn.data.trajectory import ScoredGroup, ScoredTrajectory, Turn
from cairn.rollout.demonstrate import EXPERT_VERSION


def put_together(groups: Iterable[ScoredGroup]) -> tuple[ScoredGroup, ...]:
    """One group of all that was tried at each training task from each start, in the order of their first tries.

    So a success and a failure of one task are siblings, or a right and a wrong answer at one state, whichever rounds
    they are of. Evaluations and held-out tasks are left out. Tokens count as sampled by no version of the policy.
    """
    tried: dict[tuple[TaskId, Start], list[ScoredTrajectory]] = {}
    first: dict[tuple[TaskId, Start], RolloutPlan] = {}
    for group in groups:
        plan = group.plan
        if plan.purpose is Purpose.EVALUATE or plan.task.split is not Split.TRAIN or not group.members:
            continue
        key = plan.task.id, plan.start
        first.setdefault(key, plan)
        tried.setdefault(key, []).extend(group.members)
    return tuple(
        _anew(first[key], number, members) for number, (key, members) in enumerate(tried.items()) if len(members) > 1
    )


class StoredGroups:
    """Gives the stored group of a plan."""

    def __init__(self, groups: Sequence[ScoredGroup]) -> None:
        self._groups: Mapping[GroupId, ScoredGroup] = {group.plan.group_id: group for group in groups}

    def __call__(self, plan: RolloutPlan) -> ScoredGroup:
        return self._groups[plan.group_id]


def _anew(plan: RolloutPlan, number: int, members: Sequence[ScoredTrajectory]) -> ScoredGroup:
    own = replace(plan, group_id=GroupId(f"stored-{number:06d}"), group_size=len(members), purpose=Purpose.TRAIN)
    return ScoredGroup(plan=own, members=tuple(_by_nobody(member, own) for member in members))


def _by_nobody(member: ScoredTrajectory, plan: RolloutPlan) -> ScoredTrajectory:
    trajectory = member.trajectory
    turns = tuple(_unversioned(turn) for turn in trajectory.turns)
    return replace(member, trajectory=replace(trajectory, plan=plan, turns=turns))


def _unversioned(turn: Turn) -> Turn:
    said = turn.completion
    versions = np.full(said.versions.shape, EXPERT_VERSION, np.int32)
    return replace(turn, completion=replace(said, versions=versions))
