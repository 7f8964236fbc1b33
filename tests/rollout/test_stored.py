"""What a run has stored, put together to be learned from again."""

from dataclasses import replace

import numpy as np
import pytest

from cairn.data.action import Finish
from cairn.data.ids import GroupId
from cairn.data.sample import Aggregation
from cairn.data.task import Purpose, Recorded, Split, Start
from cairn.data.trajectory import ScoredGroup, ScoredTrajectory
from cairn.rollout.estimators import by_trajectory, no_gradient
from cairn.rollout.pairs import pairs_of
from cairn.rollout.samples import Crediting, credit
from cairn.rollout.stored import StoredGroups, put_together
from rollout.stage import plan_for
from rollout.test_samples import SEEN, member, turn


def played(
    *rewards: float, index: int = 0, start: Start | None = None, name: str = "g", version: int = 3
) -> ScoredGroup:
    plan = replace(plan_for(index=index, size=len(rewards), start=start), group_id=GroupId(name))
    members: list[ScoredTrajectory] = []
    for number, reward in enumerate(rewards):
        one = member([turn([9], [10 * index + number + 1], version=3)], reward)
        members.append(replace(one, trajectory=replace(one.trajectory, plan=plan)))
    return ScoredGroup(plan=plan, members=tuple(members))


def state(goal: str) -> Recorded:
    return Recorded(goal=goal, observation=SEEN, expert=Finish())


def test_a_success_and_a_failure_of_one_task_become_siblings_whichever_rounds_they_are_of() -> None:
    (found,) = put_together([played(0.0, 0.0, name="early"), played(1.0, 1.0, name="late")])
    assert found.rewards.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert no_gradient(found) is None
    assert {m.trajectory.plan for m in found.members} == {found.plan}


def test_so_do_answers_at_one_state_and_those_at_others_stay_apart() -> None:
    groups = [
        played(0.0, start=state("one")),
        played(1.0, start=state("one")),
        played(1.0, start=state("other")),
        played(0.0, index=1),
        played(0.0, index=1),
    ]
    found = put_together(groups)
    assert [(g.plan.task.index, len(g.members)) for g in found] == [(0, 2), (1, 2)]
    assert len({g.plan.group_id for g in found}) == 2


@pytest.mark.parametrize("change", ["evaluation", "held out"])
def test_what_a_run_was_measured_on_is_never_learned_from(change: str) -> None:
    one = played(0.0, 1.0)
    plan = one.plan
    if change == "evaluation":
        plan = replace(plan, purpose=Purpose.EVALUATE)
    else:
        plan = replace(plan, task=replace(plan.task, split=Split.HELD_OUT))
    assert put_together([replace(one, plan=plan)]) == ()


def test_their_tokens_are_of_no_version_and_else_as_they_were() -> None:
    (found,) = put_together([played(0.0, 1.0)])
    (pair,) = pairs_of([found], limit=4)
    assert pair.chosen[0].token_ids.tolist() == [9, 2]
    assert set(np.concatenate([s.versions for s in (*pair.chosen, *pair.rejected)]).tolist()) == {-1}
    done = credit(
        [found], Crediting(advantages=by_trajectory(lambda r: r - r.mean()), aggregation=Aggregation.TOKEN_MEAN)
    )
    assert done.batch is not None
    assert [s.sample.logprobs[-1] for s in done.batch.samples] == [-1.0, -2.0]


def test_a_plan_gets_its_own_group() -> None:
    groups = put_together([played(0.0, 1.0, index=i) for i in range(3)])
    given = StoredGroups(groups)
    assert all(given(group.plan) is group for group in groups)
