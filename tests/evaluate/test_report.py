"""What counts in an evaluation, and what stands beside it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cairn.data.ids import GroupId, TemplateId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import Ending, LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory
from cairn.evaluate.report import EvaluationReport, summarise
from cairn.evaluate.run import Evaluator
from cairn.ports import Sampling
from cairn.testing.groups import played_group

ONE, OTHER = (Template(id=TemplateId(f"t/{name}"), max_turns=5) for name in ("one", "other"))


def plan(template: Template = ONE, *, index: int = 0, tries: int = 4) -> RolloutPlan:
    return RolloutPlan(
        group_id=GroupId(f"{template.id}{index}"),
        task=Task(template=template, split=Split.HELD_OUT, index=index),
        start=Root(),
        group_size=tries,
        depth=5,
        purpose=Purpose.EVALUATE,
        seed=0,
    )


def losing(group: ScoredGroup, *members: int) -> ScoredGroup:
    """The group, with these members lost to the outside instead."""
    lost = tuple(
        LostTrajectory(
            trajectory=replace(
                group.members[i].trajectory, ending=Ending.INFRASTRUCTURE_ERROR, evidence=None, error="gone"
            ),
            outcome=Outcome.INFRASTRUCTURE_ERROR,
            reason="gone",
        )
        for i in members
    )
    return replace(group, members=tuple(m for i, m in enumerate(group.members) if i not in members), lost=lost)


def report(groups: Sequence[ScoredGroup], tries: int = 4) -> EvaluationReport:
    return summarise(groups, split=Split.HELD_OUT, greedy=False, tries=tries)


def test_avg_at_k_is_the_mean_over_tasks_of_their_share_of_solved_tries() -> None:
    found = report(
        [played_group(plan(index=0), [1.0, 1.0, 0.0, 0.0]), played_group(plan(index=1), [1.0, 0.0, 0.0, 0.0])]
    )
    assert found.success.mean == pytest.approx((0.5 + 0.25) / 2)
    assert found.success.low < found.success.mean < found.success.high


def test_pass_at_k_asks_whether_any_of_k_tries_solves_a_task() -> None:
    found = report(
        [played_group(plan(index=0), [1.0, 0.0, 0.0, 0.0]), played_group(plan(index=1), [0.0, 0.0, 0.0, 0.0])]
    )
    assert found.pass_at(4).mean == pytest.approx(0.5)
    assert found.pass_at(1).mean == pytest.approx(found.success.mean) == pytest.approx(1 / 8)
    assert found.pass_at(2).mean == pytest.approx(0.25)  # 1 - C(3, 2) / C(4, 2) of the first task


def test_what_was_lost_outside_stands_beside_the_success_and_never_inside() -> None:
    found = report(
        [losing(played_group(plan(), [1.0, 0.0, 0.0, 0.0]), 1, 2), played_group(plan(index=1), [1.0, 1.0, 1.0, 1.0])]
    )
    assert found.success.mean == pytest.approx((0.5 + 1.0) / 2)
    assert (found.episodes, found.lost) == (6, 2)


def test_a_task_of_which_every_try_was_lost_says_nothing() -> None:
    found = report([losing(played_group(plan(), [1.0, 1.0]), 0, 1), played_group(plan(index=1), [0.0, 1.0])], tries=2)
    assert found.success.mean == 0.5
    assert found.scores[0].tasks[0].valid == 0


def test_where_nothing_was_measured_anything_is_possible() -> None:
    found = report([losing(played_group(plan(), [1.0]), 0)])
    assert (found.success.mean, found.success.low, found.success.high) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("outcome", [Outcome.FORMAT_ERROR, Outcome.TRUNCATED])
def test_a_format_error_or_a_cut_episode_counts_as_a_failure(outcome: Outcome) -> None:
    group = played_group(plan(), [1.0, 0.0])
    bad = ScoredTrajectory(trajectory=group.members[1].trajectory, outcome=outcome, reward=0.0)
    found = report([replace(group, members=(group.members[0], bad))])
    assert (found.success.mean, found.episodes) == (0.5, 2)
    assert (found.scores[0].format_errors, found.scores[0].truncated) == (
        (1, 0) if outcome is Outcome.FORMAT_ERROR else (0, 1)
    )


def test_the_length_of_an_answer_is_that_of_every_turn_of_the_valid_tries() -> None:
    group = played_group(plan(), [1.0, 0.0, 0.0])
    (turn,) = group.members[1].trajectory.turns
    ids = np.array([1, 2, 3, 4, 0], np.int32)
    said = replace(turn.completion, token_ids=ids, logprobs=np.zeros(5, np.float32), versions=np.zeros(5, np.int32))
    longer = replace(group.members[1].trajectory, turns=(replace(turn, completion=said), turn))
    members = (group.members[0], replace(group.members[1], trajectory=longer), group.members[2])
    found = report([losing(replace(group, members=members), 2)])
    assert found.answer_tokens == pytest.approx((2 + 5 + 2) / 3)
    assert report([losing(played_group(plan(), [1.0]), 0)]).answer_tokens == 0.0


def test_scores_are_by_template_in_the_order_of_the_tasks() -> None:
    found = report([played_group(plan(OTHER), [1.0]), played_group(plan(ONE), [0.0]), played_group(plan(OTHER), [0.0])])
    assert [(s.template, s.success) for s in found.scores] == [(OTHER.id, 0.5), (ONE.id, 0.0)]


def longer(group: ScoredGroup, *turns: int) -> ScoredGroup:
    """The group, with episodes of so many turns."""
    members = tuple(
        replace(m, trajectory=replace(m.trajectory, turns=m.trajectory.turns * count))
        for m, count in zip(group.members, turns, strict=True)
    )
    return replace(group, members=members)


def test_success_within_a_budget_counts_longer_episodes_as_failures() -> None:
    groups = [
        longer(played_group(plan(index=0), [1.0, 1.0, 1.0, 0.0]), 1, 3, 4, 1),
        longer(played_group(plan(index=1), [1.0, 0.0, 0.0, 0.0]), 3, 3, 3, 3),
    ]
    found = summarise(groups, split=Split.HELD_OUT, greedy=False, tries=4, budgets=[4, 1, 3, 9])
    assert [(b.turns, b.success.mean) for b in found.budgets] == [
        (1, pytest.approx((1 / 4 + 0) / 2)),
        (3, pytest.approx((2 / 4 + 1 / 4) / 2)),
        (4, pytest.approx((3 / 4 + 1 / 4) / 2)),
        (9, pytest.approx(found.success.mean)),
    ]
    assert report(groups).budgets == ()


# ── what is played ────────────────────────────────────────────────────────────


async def played(
    *, split: Split, greedy: bool, seed: int = 0, max_turns: int | None = None, budgets: Sequence[int] = ()
):
    plans: list[RolloutPlan] = []
    samplings: list[Sampling] = []

    async def play(wanted: Sequence[RolloutPlan], sampling: Sampling) -> Sequence[ScoredGroup]:
        plans.extend(wanted)
        samplings.append(sampling)
        return [played_group(p, [1.0] * p.group_size) for p in wanted]

    evaluator = Evaluator(
        play=play, sampling=Sampling(temperature=0.8), seed=seed, max_turns=max_turns, budgets=budgets
    )
    found = await evaluator.run([ONE, OTHER], split=split, per_template=3, tries=2, greedy=greedy)
    return plans, samplings[0], found


async def test_held_out_tasks_come_from_held_out_seeds_alone() -> None:
    plans, _, _ = await played(split=Split.HELD_OUT, greedy=False)
    assert {p.task.seed for p in plans} == {1_000_000, 1_000_001, 1_000_002}
    assert {(p.purpose, p.start) for p in plans} == {(Purpose.EVALUATE, Root())}
    assert {p.task.template.id for p in plans} == {ONE.id, OTHER.id}


async def test_episodes_go_on_up_to_the_largest_budget_whatever_the_runs_own_limit_is() -> None:
    plans, _, found = await played(split=Split.HELD_OUT, greedy=False, max_turns=2, budgets=[3, 20])
    assert {p.depth for p in plans} == {20}
    assert [b.turns for b in found.budgets] == [3, 20]


async def test_greedy_is_one_try_at_temperature_0_of_the_very_same_tasks() -> None:
    sampled, own, _ = await played(split=Split.HELD_OUT, greedy=False)
    greedy, cold, found = await played(split=Split.HELD_OUT, greedy=True)
    assert [p.task for p in greedy] == [p.task for p in sampled]
    assert {p.group_size for p in sampled} == {2}
    assert {p.group_size for p in greedy} == {1}
    assert (own.temperature, cold.temperature, found.tries) == (0.8, 0.0, 1)


async def test_two_policies_meet_equal_tasks_with_equal_seeds() -> None:
    first, _, _ = await played(split=Split.HELD_OUT, greedy=False)
    second, _, _ = await played(split=Split.HELD_OUT, greedy=False)
    assert first == second
    assert len({p.seed for p in first}) == len(first)


async def test_turns_are_limited_by_the_template_or_by_the_run() -> None:
    own, _, _ = await played(split=Split.TRAIN, greedy=False)
    fewer, _, _ = await played(split=Split.TRAIN, greedy=False, max_turns=2)
    assert ({p.depth for p in own}, {p.depth for p in fewer}) == ({5}, {2})
