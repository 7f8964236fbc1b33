"""A judge against a checker: published figures, edges and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.agreement import Agreement, agreement
from cairn.algo.statistics import wilson


def counted(both: int, judge_alone: int, checker_alone: int, neither: int) -> Agreement:
    return Agreement(both=both, judge_alone=judge_alone, checker_alone=checker_alone, neither=neither)


def test_a_worked_example_of_kappa() -> None:
    """20 and 15 of 50 alike, 5 and 10 not: observed 0.7, expected 0.5 (the usual textbook table)."""
    found = counted(20, 5, 10, 15)
    assert found.kappa == pytest.approx(0.4)
    assert found.accuracy == wilson(35, 50)
    assert found.precision == pytest.approx(20 / 25)
    assert found.recall == pytest.approx(20 / 30)
    assert counted(45, 15, 25, 15).kappa == pytest.approx(0.1304, abs=5e-5)
    assert counted(25, 35, 5, 35).kappa == pytest.approx(0.2593, abs=5e-5)


@pytest.mark.parametrize(
    ("counts", "kappa"), [((5, 0, 0, 5), 1.0), ((0, 5, 5, 0), -1.0), ((9, 0, 0, 0), 0.0), ((0, 0, 0, 9), 0.0)]
)
def test_the_ends_of_kappa(counts: tuple[int, int, int, int], kappa: float) -> None:
    assert counted(*counts).kappa == pytest.approx(kappa)


def test_what_was_never_said_has_no_share() -> None:
    assert counted(0, 0, 3, 1).precision is None
    assert counted(0, 3, 0, 1).recall is None


def test_cases_are_counted_in_pairs() -> None:
    assert agreement([True, True, False, False], [True, False, True, False]) == counted(1, 1, 1, 1)
    with pytest.raises(ValueError, match="shorter"):
        agreement([True], [])
    with pytest.raises(ValueError, match="at least one case"):
        agreement([], [])
    with pytest.raises(ValueError, match="negative"):
        counted(-1, 1, 1, 1)


pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@given(pairs)
def test_kappa_is_symmetric_bounded_and_the_same_where_yes_and_no_change_places(rows: list[tuple[bool, bool]]) -> None:
    judged, checked = [a for a, _ in rows], [b for _, b in rows]
    kappa = agreement(judged, checked).kappa
    assert -1.0 - 1e-9 <= kappa <= 1.0 + 1e-9
    assert agreement(checked, judged).kappa == pytest.approx(kappa)
    assert agreement([not a for a in judged], [not b for b in checked]).kappa == pytest.approx(kappa)
    assert (kappa > 1 - 1e-9) == (judged == checked and len(set(checked)) == 2)
