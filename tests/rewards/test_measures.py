"""Rewards of places, texts and lengths: published vectors, edges and properties."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairn.data.action import Point
from cairn.data.observation import Box
from cairn.rewards import grounding, shaping

BOX = Box(left=0.2, top=0.2, width=0.2, height=0.4)


def test_the_edge_of_a_box_is_inside_unless_strictly_meant() -> None:
    assert grounding.point_in_box(Point(0.2, 0.2), BOX)
    assert not grounding.point_in_box(Point(0.2, 0.2), BOX, strict=True)
    assert grounding.point_in_box(Point(0.3, 0.3), BOX, strict=True)
    assert not grounding.point_in_box(Point(0.41, 0.3), BOX)
    assert not grounding.point_in_box(Point(0.3, 0.19), BOX)


def test_near_is_a_share_of_the_screen() -> None:
    assert grounding.point_near(Point(0.5, 0.5), Point(0.5, 0.6), share=0.14)
    assert not grounding.point_near(Point(0.5, 0.5), Point(0.5, 0.7), share=0.14)


@pytest.mark.parametrize(("share", "reward"), [(0.35, 0.5), (0.7, 1.0), (0.9, 1.0), (0.0, 0.0)])
def test_a_boxs_reward_rises_to_one_at_an_overlap_of_seven_tenths(share: float, reward: float) -> None:
    inner = Box(left=0.2, top=0.2, width=0.2 * share, height=0.4)
    assert grounding.overlap(inner, BOX) == pytest.approx(share)
    assert grounding.box_reward(inner, BOX) == pytest.approx(reward)


boxes = st.builds(Box, left=st.floats(0, 1), top=st.floats(0, 1), width=st.floats(0, 1), height=st.floats(0, 1))

flat = Box(left=0.0, top=0.5, width=1.0, height=2.8061555882520035e-14)


@given(boxes, boxes)
@example(flat, flat)
def test_overlap_is_symmetric_and_a_share(one: Box, other: Box) -> None:
    assert 0.0 <= grounding.overlap(one, other) <= 1.0 + 1e-9
    assert grounding.overlap(one, other) == pytest.approx(grounding.overlap(other, one))


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [("deep red", "Red deep", 1.0), ("a b c", "a d", 0.4), ("red", "dark redish", 1.0), ("", "", 1.0), ("", "a", 0.0)],
)
def test_words_in_common_as_a_set(one: str, other: str, score: float) -> None:
    assert grounding.word_overlap(one, other) == pytest.approx(score)


def test_published_values_of_the_length_reward() -> None:
    right = [40, 60, 60, 80]  # their mean is 60
    lengths = [*right, 200, 200, 60, 100]
    correct = [True] * 4 + [False] * 4
    found = dict(zip(lengths, shaping.length_budget(lengths, correct), strict=True))
    assert found[40] == pytest.approx(0.846, abs=5e-4)
    assert found[200] == pytest.approx(-0.1)
    assert shaping.length_budget(lengths, correct)[1] == pytest.approx(0.769, abs=5e-4)
    assert shaping.length_budget(lengths, correct)[6] == pytest.approx(-0.585, abs=5e-4)
    for others, length, reward in (([20, 40, 50], 130, 0.5), ([10, 15, 15], 200, 0.231)):  # their mean is 60, too
        added = shaping.length_budget([length, *others, 200, 200, 60, 100], correct)
        assert added[0] == pytest.approx(reward, abs=5e-4)
    nothing = shaping.length_budget([100, 200], [False, False])
    assert nothing == pytest.approx([-0.55, -0.1])


@given(st.lists(st.tuples(st.integers(1, 500), st.booleans()), min_size=1, max_size=8))
def test_shorter_is_better_for_right_answers_and_worse_for_wrong_ones(group: list[tuple[int, bool]]) -> None:
    lengths, correct = [n for n, _ in group], [c for _, c in group]
    found = shaping.length_budget(lengths, correct)
    for (n, c), reward in zip(group, found, strict=True):
        assert reward >= 0.1 if c else reward <= -0.1
        for (m, d), other in zip(group, found, strict=True):
            if c and d and n <= m:
                assert reward >= other
            if not c and not d and n <= m:
                assert reward <= other


def test_the_more_answers_are_right_the_nearer_the_budget_is_to_their_length() -> None:
    one_of_four = shaping.length_budget([60, 200, 100, 200], [True, False, False, False])  # a budget of 165
    assert one_of_four == pytest.approx([0.5 + 0.5 * 105 / 165, -0.1, 0.9 * (-65 / 165) - 0.1, -0.1])


def test_a_right_answer_earns_something_however_long_it_is() -> None:
    assert shaping.length_budget([10, 10, 400], [True] * 3)[2] == pytest.approx(0.1)  # a budget of 140


def test_a_group_has_lengths_and_verdicts() -> None:
    for lengths, correct in (([], []), ([1], [])):
        with pytest.raises(ValueError, match="for each answer"):
            shaping.length_budget(lengths, correct)


@pytest.mark.parametrize(("length", "penalty"), [(16384, 0.0), (18432, -0.5), (20480, -1.0), (21000, -1.0), (5, 0.0)])
def test_overlong_answers_lose_up_to_one(length: int, penalty: float) -> None:
    assert shaping.overlong(length, limit=20480, buffer=4096) == pytest.approx(penalty)


def test_accuracy_counts_only_where_the_answer_is_well_formed() -> None:
    assert shaping.gated(well_formed=True, accuracy=1.0) == pytest.approx(1.0)
    assert shaping.gated(well_formed=True, accuracy=0.0) == pytest.approx(0.1)
    assert shaping.gated(well_formed=False, accuracy=1.0) == 0.0
    assert shaping.agent_accuracy(right_type=True, right_parameters=True, sub_goal=0.5) == pytest.approx(1.0)
    assert shaping.agent_accuracy(right_type=True, right_parameters=False, sub_goal=0.5) == pytest.approx(0.3)
    assert shaping.agent_accuracy(right_type=False, right_parameters=True) == 0.0


def test_formats_paths_and_progress() -> None:
    assert shaping.well_formed_share([True, True, False, False]) == 0.0
    assert shaping.well_formed_share([]) == -1.0
    assert shaping.shortest_path(1.0, turns=10, shortest=5, weight=0.4) == pytest.approx(0.8)
    assert shaping.shortest_path(0.0, turns=10, shortest=5, weight=0.4) == 0.0
    assert shaping.progress(1.0, reached=True) == 1.0
    assert shaping.progress(1.0, reached=True, side_effects=True) == pytest.approx(0.8)
    assert shaping.progress(1.0, reached=True, aborted=True) == pytest.approx(0.5)
    assert shaping.progress(1.0, reached=True, finished=False) == pytest.approx(0.5)
    assert shaping.progress(0.5, reached=False) == pytest.approx(0.4)
    assert shaping.progress(0.5, reached=False, finished=False) == pytest.approx(0.5)
