"""A greedy rollout beside every group, for its siblings to be compared with (ReMax, arXiv:2310.10505)."""

from collections.abc import Sequence
from dataclasses import replace

from cairn.data.ids import GroupId
from cairn.data.task import Purpose, RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.rollout.runner import RolloutRunner


async def with_greedy(runner: RolloutRunner, plans: Sequence[RolloutPlan]) -> tuple[ScoredGroup, ...]:
    """Every plan's group, with the reward of a greedy rollout from where it starts.

    All of them are played side by side; a greedy rollout is a group of one, stored and counted like any other, with a
    purpose of its own. Where it was lost, its group has none. Plans that nothing is learned from get none either.
    """
    beside = {plan.group_id: beside_plan(plan) for plan in plans if plan.purpose.trained}
    played = {group.plan.group_id: group for group in await runner.round([*plans, *beside.values()])}
    found: list[ScoredGroup] = []
    for plan in plans:
        greedy = played[beside[plan.group_id].group_id].members if plan.group_id in beside else ()
        found.append(replace(played[plan.group_id], greedy=greedy[0].reward if greedy else None))
    return tuple(found)


def beside_plan(plan: RolloutPlan) -> RolloutPlan:
    """The greedy rollout of a plan."""
    return replace(plan, group_id=GroupId(f"{plan.group_id}/greedy"), group_size=1, purpose=Purpose.BASELINE)
