"""What is worth learning at, by the published rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.selection import UI_R1_MIX, Answered, bottlenecks, difficult, diverse, undecided

KINDS = ("click", "open", "back", "scroll", "type", "drag")


def answered(right: int, tries: int = 10, tokens: float = 5.0) -> Answered:
    return Answered(right=right, tries=tries, tokens=tokens)


def test_all_right_all_wrong_and_lost_are_dropped() -> None:
    assert undecided([answered(n) for n in (0, 1, 5, 9, 10)] + [answered(0, 0)]) == [1, 2, 3]


def test_what_fails_is_difficult_and_long_answers_come_first() -> None:
    found = [answered(0, 1, 3.0), answered(1, 1, 9.0), answered(0, 1, 8.0), answered(0, 0, 9.0), answered(0, 1, 3.0)]
    assert difficult(found) == [2, 0, 4]


def test_a_bottleneck_fails_with_the_goal_and_succeeds_with_the_steps_own() -> None:
    goal = [answered(n, 1) for n in (0, 0, 1, 1)] + [answered(4, 10), answered(5, 10), answered(0, 0)]
    told = [answered(n, 1) for n in (1, 0, 1, 0)] + [answered(5, 10), answered(9, 10), answered(1, 1)]
    assert bottlenecks(goal, told) == [0, 4]
    with pytest.raises(ValueError, match="both ways"):
        bottlenecks(goal, told[1:])


def test_the_published_mix_comes_out_where_there_is_enough_of_everything() -> None:
    kinds = [kind for kind in KINDS[:5] for _ in range(200)]
    kept = diverse(range(1000), kinds, size=136, mix=UI_R1_MIX)
    counts = {kind: sum(kinds[place] == kind for place in kept) for kind in KINDS[:5]}
    assert counts == {"click": 101, "open": 19, "back": 9, "scroll": 5, "type": 2}


def test_the_best_ranked_of_a_kind_are_kept() -> None:
    assert diverse([3, 1, 0, 2], ["click"] * 4, size=2, mix=UI_R1_MIX) == [1, 3]


@given(st.lists(st.sampled_from(KINDS), max_size=40), st.integers(1, 50), st.randoms(use_true_random=False))
def test_every_kind_is_represented_and_the_size_is_kept(kinds: list[str], size: int, random) -> None:
    ranked = list(range(len(kinds)))
    random.shuffle(ranked)
    kept = diverse(ranked, kinds, size=size, mix=UI_R1_MIX)
    assert kept == sorted(set(kept))
    assert len(kept) == min(size, len(kinds))
    if size >= len(set(kinds)):
        assert {kinds[place] for place in kept} == set(kinds)


def test_more_right_answers_than_tries_are_refused() -> None:
    with pytest.raises(ValueError, match="right <= tries"):
        answered(2, 1)
