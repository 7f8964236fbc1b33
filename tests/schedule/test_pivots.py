"""Single answers at pivots: what is measured, what is practised, and that nothing is executed."""

from collections import Counter

import pytest

from cairn.data.task import Purpose, Recorded, RolloutPlan
from cairn.errors import ConfigError
from cairn.schedule.orders import Writer
from cairn.schedule.pivots import PivotOptions, PivotRounds
from cairn.schedule.signals import Selection, Signal
from cairn.testing.groups import played_group
from cairn.testing.scheduler_contract import SCHEDULER_CONTRACT, Check
from schedule.tracks import came_to, track_of

SPLIT, UNANIMOUS = (4, 4), (8,)


def rounds(*steps: int, selection: Selection | None = None, options: PivotOptions | None = None) -> PivotRounds:
    tracks = [track_of(n, index=i) for i, n in enumerate(steps or (3, 2))]
    return PivotRounds(tracks=tracks, writer=Writer(name="p", seed=1), selection=selection, options=options)


def place(plan: RolloutPlan) -> tuple[int, int]:
    assert isinstance(plan.start, Recorded)
    return plan.task.index, len(plan.start.history)


def surveyed(scheduler: PivotRounds, *kinds: tuple[int, ...]) -> list[RolloutPlan]:
    """Answers of those kinds, checkpoint by checkpoint."""
    plans: list[RolloutPlan] = []
    for sizes in kinds:
        plans.append(scheduler.next_plan())
        scheduler.observe(came_to(plans[-1], kinds=sizes))
    return plans


@pytest.mark.parametrize("check", SCHEDULER_CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("options", [PivotOptions(), PivotOptions(weighted=True), PivotOptions(survey_every=1)])
def test_the_scheduler_contract(check: Check, options: PivotOptions) -> None:
    check(lambda: rounds(options=options))


def test_every_checkpoint_is_measured_and_every_pivot_practised_once_in_a_round() -> None:
    scheduler = rounds()
    measured = surveyed(scheduler, SPLIT, UNANIMOUS, SPLIT, UNANIMOUS, SPLIT)
    assert [place(plan) for plan in measured] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert {plan.purpose for plan in measured} == {Purpose.REESTIMATE}
    practised = [scheduler.next_plan() for _ in range(9)]
    assert {plan.purpose for plan in practised} == {Purpose.TRAIN}
    assert {(plan.group_size, plan.depth) for plan in (*measured, *practised)} == {(8, 1)}
    for three in (practised[:3], practised[3:6], practised[6:]):
        assert sorted(place(plan) for plan in three) == [(0, 0), (0, 2), (1, 1)]


def test_without_any_pivot_each_task_is_practised_where_the_policy_hesitates_most() -> None:
    scheduler = rounds()
    surveyed(scheduler, UNANIMOUS, (7, 1), UNANIMOUS, UNANIMOUS, (6, 2))
    assert sorted(place(scheduler.next_plan()) for _ in range(2)) == [(0, 1), (1, 1)]


def test_checkpoints_are_measured_again_where_that_is_wanted() -> None:
    scheduler = rounds(2, options=PivotOptions(survey_every=1))
    surveyed(scheduler, SPLIT, UNANIMOUS)
    assert place(scheduler.next_plan()) == (0, 0)
    again = surveyed(scheduler, UNANIMOUS, SPLIT)
    assert [plan.purpose for plan in again] == [Purpose.REESTIMATE] * 2
    assert place(scheduler.next_plan()) == (0, 1)


def test_weights_prefer_where_the_samples_disagree_more() -> None:
    scheduler = rounds(3, options=PivotOptions(weighted=True))
    surveyed(scheduler, (2, 2, 2, 2), (7, 1), UNANIMOUS)
    visits = Counter(place(scheduler.next_plan()) for _ in range(300))
    assert visits[0, 0] > visits[0, 1] > visits[0, 2]


def test_a_lost_survey_is_asked_for_again() -> None:
    scheduler = rounds(1)
    first = scheduler.next_plan()
    scheduler.observe(played_group(first, []))
    assert scheduler.next_plan().start == first.start


def test_the_rest_of_a_round_survives_a_stop() -> None:
    everything = Selection(signal=Signal.ALL)
    one, other = rounds(4, 3, selection=everything), rounds(4, 3, selection=everything)
    for _ in range(3):
        one.next_plan()
    other.load_state_dict(one.state_dict())
    assert [one.next_plan() for _ in range(12)] == [other.next_plan() for _ in range(12)]


def test_without_checkpoints_there_is_nothing_to_learn_at() -> None:
    with pytest.raises(ConfigError, match="no expert solved any of the tasks"):
        rounds(0)


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError):
        PivotOptions(answers=1)
    with pytest.raises(ConfigError):
        PivotOptions(survey_every=0)
