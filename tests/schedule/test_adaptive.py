"""Adaptive starts and lengths: the published rules, one by one, and what each ambiguity was resolved to."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.data.ids import SnapshotId
from cairn.data.task import FromSnapshot, Purpose, Recorded, RolloutPlan, Root
from cairn.errors import ConfigError
from cairn.schedule.adaptive import APPENDIX, MAIN_TEXT, Adaptive, AdaptiveOptions
from cairn.schedule.orders import Writer
from cairn.schedule.progress import RANK, Mode
from cairn.schedule.signals import Selection, Signal
from cairn.testing.groups import played_group
from cairn.testing.scheduler_contract import SCHEDULER_CONTRACT, Check
from schedule.tracks import came_to, track_of

SPLIT = (4, 4)  # two actions, four times each: disagreement 0.57
UNANIMOUS = (8,)
ALL = Selection(signal=Signal.ALL)


def adaptive(*steps: int, selection: Selection = ALL, options: AdaptiveOptions | None = None) -> Adaptive:
    tracks = [track_of(n, index=i) for i, n in enumerate(steps or (3, 2, 4))]
    return Adaptive(tracks=tracks, writer=Writer(name="a", seed=1), selection=selection, options=options)


def routed(tries: int, *, steps: int = 3, options: AdaptiveOptions | None = None) -> Adaptive:
    """One task of which so many of its four first root rollouts succeeded."""
    scheduler = adaptive(steps, options=options)
    plan = scheduler.next_plan()
    assert (plan.start, plan.group_size, plan.purpose) == (Root(), 4, Purpose.REESTIMATE)
    scheduler.observe(came_to(plan, solved=tries))
    return scheduler


def visit(scheduler: Adaptive, solved: Sequence[int]) -> list[RolloutPlan]:
    """Plans, each answered with so many successes."""
    plans: list[RolloutPlan] = []
    for number in solved:
        plans.append(scheduler.next_plan())
        scheduler.observe(came_to(plans[-1], solved=number))
    return plans


@pytest.mark.parametrize("check", SCHEDULER_CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("selection", [ALL, Selection()], ids=["all", "disagreement"])
def test_the_scheduler_contract(check: Check, selection: Selection) -> None:
    check(lambda: adaptive(selection=selection))


def test_checkpoints_are_measured_first_with_eight_answers_and_no_environment() -> None:
    scheduler = adaptive(2, 1, selection=Selection())
    plans = [scheduler.next_plan() for _ in range(3)]
    assert [type(plan.start) for plan in plans] == [Recorded] * 3
    assert {(plan.group_size, plan.depth, plan.purpose) for plan in plans} == {(8, 1, Purpose.REESTIMATE)}
    assert [plan.task.index for plan in plans] == [0, 0, 1]
    assert [len(plan.start.history) for plan in plans if isinstance(plan.start, Recorded)] == [0, 1, 0]


def test_where_the_samples_disagree_is_a_pivot_and_where_they_agree_is_none() -> None:
    scheduler = adaptive(3, selection=Selection())
    for kinds in (SPLIT, UNANIMOUS, SPLIT):
        scheduler.observe(came_to(scheduler.next_plan(), kinds=kinds))
    scheduler.observe(came_to(scheduler.next_plan(), solved=0))  # 0 of 4: local
    visited = {scheduler.next_plan().start.history.__len__() for _ in range(2)}  # pyright: ignore[reportAttributeAccessIssue]
    assert visited == {0, 2}


@pytest.mark.parametrize(
    ("tries", "mode"), [(0, Mode.LOCAL), (1, Mode.SUFFIX), (2, Mode.SUFFIX), (3, Mode.SUFFIX), (4, Mode.ROOT)]
)
def test_four_root_rollouts_say_where_a_task_begins(tries: int, mode: Mode) -> None:
    assert routed(tries).mode(0) is mode


def test_a_local_task_is_answered_at_its_pivots_and_estimated_every_so_often() -> None:
    scheduler = routed(0, options=AdaptiveOptions(estimate_every=2))
    plans = visit(scheduler, [1] * 7)  # two visits of three pivots, then four root rollouts
    assert [type(plan.start) for plan in plans] == [Recorded] * 6 + [Root]
    assert (plans[0].purpose, plans[0].group_size, plans[0].depth) == (Purpose.TRAIN, 8, 1)
    assert (plans[-1].purpose, plans[-1].group_size) == (Purpose.REESTIMATE, 4)
    assert scheduler.mode(0) is Mode.SUFFIX  # one of the four succeeded


def test_of_many_pivots_four_are_answered_in_a_visit() -> None:
    scheduler = routed(0, steps=7)
    plans = visit(scheduler, [1] * 8)
    for four in (plans[:4], plans[4:]):
        assert len({plan.start for plan in four}) == 4
    assert len({plan.start for plan in plans}) > 4


def test_suffixes_start_at_the_deepest_pivot_and_move_towards_the_root() -> None:
    scheduler = routed(2, options=APPENDIX)
    plans = visit(scheduler, [5, 4, 5, 5])
    assert [plan.start for plan in plans] == [
        FromSnapshot(id=SnapshotId("s0x2")),
        FromSnapshot(id=SnapshotId("s0x1")),
        FromSnapshot(id=SnapshotId("s0x1")),  # 4 of 8 is not above one half
        Root(),  # the first pivot is the root itself, which needs no snapshot
    ]
    assert [plan.depth for plan in plans] == [10, 11, 11, 12]
    assert {(plan.group_size, plan.purpose) for plan in plans} == {(8, Purpose.TRAIN)}
    assert scheduler.mode(0) is Mode.ROOT


@pytest.mark.parametrize(("options", "needed"), [(APPENDIX, 5), (MAIN_TEXT, 7)])
def test_both_published_thresholds_of_the_frontier(options: AdaptiveOptions, needed: int) -> None:
    for solved in range(9):
        scheduler = routed(2, options=options)
        visit(scheduler, [solved])
        assert (scheduler.frontier(0) == 1) is (solved >= needed)


def test_a_window_averages_the_rates_of_several_visits() -> None:
    scheduler = routed(2, options=AdaptiveOptions(suffix_window=2))
    visit(scheduler, [8])
    assert scheduler.frontier(0) == 2
    visit(scheduler, [1])
    assert scheduler.frontier(0) == 1


def test_a_group_that_was_ordered_before_the_frontier_moved_does_not_move_it_again() -> None:
    scheduler = routed(2)
    first, second = scheduler.next_plan(), scheduler.next_plan()
    assert first.start == second.start
    scheduler.observe(came_to(first, solved=8))
    scheduler.observe(came_to(second, solved=8))
    assert scheduler.frontier(0) == 1


def test_a_task_at_its_root_is_probed_by_two_and_never_leaves() -> None:
    scheduler = routed(4)
    plans = visit(scheduler, [0] * 20)
    assert {(type(p.start), p.group_size, p.purpose, p.depth) for p in plans} == {(Root, 2, Purpose.PROBE, 12)}
    assert scheduler.mode(0) is Mode.ROOT


def test_a_forgotten_task_goes_back_to_suffixes_where_that_is_wanted() -> None:
    scheduler = routed(4, options=AdaptiveOptions(demote_below=0.5, probe_window=4))
    visit(scheduler, [1, 1])
    assert scheduler.mode(0) is Mode.ROOT
    visit(scheduler, [0])
    assert scheduler.mode(0) is Mode.SUFFIX
    assert scheduler.frontier(0) == 0


def test_a_local_task_without_gradient_is_rescued_where_that_is_wanted() -> None:
    for after, mode in ((None, Mode.LOCAL), (1, Mode.SUFFIX)):
        scheduler = routed(0, options=AdaptiveOptions(estimate_every=1, rescue_after=after))
        visit(scheduler, [0, 0, 0, 0, 8, 8, 8, 0])
        assert scheduler.mode(0) is mode


def test_local_groups_with_a_gradient_are_no_reason_for_a_rescue() -> None:
    scheduler = routed(0, options=AdaptiveOptions(estimate_every=1, rescue_after=1))
    visit(scheduler, [3, 0, 0, 0] * 5)
    assert scheduler.mode(0) is Mode.LOCAL


def test_a_task_without_pivots_starts_in_its_middle_or_where_the_policy_hesitates_most() -> None:
    for tries, expected in ((1, 2), (0, 1)):
        scheduler = adaptive(4, selection=Selection())
        for kinds in (UNANIMOUS, (7, 1), UNANIMOUS, UNANIMOUS):
            scheduler.observe(came_to(scheduler.next_plan(), kinds=kinds))
        scheduler.observe(came_to(scheduler.next_plan(), solved=tries))
        start = scheduler.next_plan().start
        if isinstance(start, Recorded):
            assert len(start.history) == expected
        else:
            assert start == FromSnapshot(id=SnapshotId(f"s0x{expected}"))


def test_a_task_without_checkpoints_is_always_rolled_out_whole_by_eight() -> None:
    for tries in (0, 2, 4):
        scheduler = routed(tries, steps=0)
        assert {(type(p.start), p.group_size) for p in visit(scheduler, [0, 4, 8])} == {(Root, 8)}
        assert scheduler.frontier(0) is None
        again = adaptive(0)
        again.load_state_dict(scheduler.state_dict())
        assert again.mode(0) is scheduler.mode(0)


def test_checkpoints_that_nobody_saved_are_no_ways_in_but_the_root_is() -> None:
    tracks = [track_of(3, saved=False)]
    scheduler = Adaptive(tracks=tracks, writer=Writer(name="a", seed=1), selection=ALL)
    scheduler.observe(came_to(scheduler.next_plan(), solved=2))
    assert scheduler.next_plan().start == Root()


def test_lost_groups_are_asked_for_again() -> None:
    scheduler = adaptive(1, selection=Selection())
    first = scheduler.next_plan()
    scheduler.observe(played_group(first, []))
    again = scheduler.next_plan()
    assert again.start == first.start
    scheduler.observe(came_to(again, kinds=SPLIT))
    estimate = scheduler.next_plan()
    scheduler.observe(played_group(estimate, [1.0]))  # three of the four were lost
    more = scheduler.next_plan()
    assert (more.start, more.group_size, more.purpose) == (Root(), 4, Purpose.REESTIMATE)
    scheduler.observe(came_to(more, solved=4))
    assert scheduler.mode(0) is Mode.ROOT


def test_a_task_that_waits_for_its_groups_is_passed_over() -> None:
    scheduler = adaptive(2, 2)
    for plan in [scheduler.next_plan(), scheduler.next_plan()]:
        scheduler.observe(came_to(plan, solved=2))
    tasks = [scheduler.next_plan().task.index for _ in range(2)]
    assert sorted(tasks) == [0, 1]


@given(st.lists(st.integers(0, 8), min_size=5, max_size=60), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=40)
def test_no_task_ever_goes_back(solved: list[int], first: int, second: int) -> None:
    scheduler = adaptive(4, 3)
    for tries in (first, second):
        scheduler.observe(came_to(scheduler.next_plan(), solved=tries))
    before = [(-1, -99)] * 2
    for number in solved:
        plan = scheduler.next_plan()
        scheduler.observe(came_to(plan, solved=min(number, plan.group_size)))
        now = [(RANK[scheduler.mode(t) or Mode.LOCAL], -(scheduler.frontier(t) or 0)) for t in range(2)]
        assert all(after >= earlier for after, earlier in zip(now, before, strict=True))
        before = now


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_no_task_starves(seed: int) -> None:
    tracks = [track_of(2, index=i) for i in range(7)]
    scheduler = Adaptive(tracks=tracks, writer=Writer(name="a", seed=seed), selection=ALL)
    plans = [scheduler.next_plan() for _ in range(7)]
    for plan in plans:
        scheduler.observe(came_to(plan, solved=plan.task.index % 5))
    visits: Counter[int] = Counter()
    for _ in range(140):
        plan = scheduler.next_plan()
        visits[plan.task.index] += 1
        scheduler.observe(came_to(plan, solved=0))
    assert len(visits) == 7
    assert max(visits.values()) <= 3 * min(visits.values())  # a local visit takes two groups


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tau_low": 0.8, "tau_high": 0.2}, "tau_low <= tau_high"),
        ({"tau_suffix": 1.0}, "nothing is ever above it"),
        ({"probes": 1}, "at least two members"),
        ({"answers": 1}, "at least two members"),
        ({"estimate_every": 0}, "at least 1"),
        ({"rescue_after": 0}, "at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AdaptiveOptions(**options)  # pyright: ignore[reportArgumentType]


def test_there_must_be_a_task() -> None:
    with pytest.raises(ConfigError, match="at least one task"):
        Adaptive(tracks=[], writer=Writer(name="a", seed=0))


def test_a_state_of_other_checkpoints_is_refused() -> None:
    with pytest.raises(ConfigError, match="other checkpoints"):
        adaptive(3).load_state_dict(adaptive(4).state_dict())
