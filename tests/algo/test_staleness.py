import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.staleness import admissible


def started(*, version: int, batch_size: int, ahead: int, places: int) -> int:
    """How many are admitted one by one, none of them finishing."""
    running = 0
    while admissible(
        running=running,
        accepted=version * batch_size,
        version=version,
        batch_size=batch_size,
        ahead=ahead,
        places=places,
    ):
        running += 1
    return running


def test_golden_admissions() -> None:
    assert started(version=0, batch_size=4, ahead=1, places=99) == 8
    assert started(version=0, batch_size=4, ahead=0, places=99) == 4
    assert started(version=3, batch_size=4, ahead=1, places=99) == 8
    assert started(version=0, batch_size=4, ahead=1, places=5) == 5


@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 4), st.integers(0, 40), st.integers(0, 40))
def test_the_last_one_started_is_used_at_most_so_many_versions_ahead(
    version: int, batch_size: int, ahead: int, running: int, accepted: int
) -> None:
    more = admissible(
        running=running, accepted=accepted, version=version, batch_size=batch_size, ahead=ahead, places=running + 7
    )
    assert 0 <= more <= 7
    if more:
        assert (running + accepted + more - 1) // batch_size <= version + ahead  # the paper's equation 3
    else:
        assert (running + accepted) // batch_size > version + ahead


@pytest.mark.parametrize("places", [0, 3])
def test_places_that_are_taken_start_nothing(places: int) -> None:
    assert admissible(running=places, accepted=0, version=0, batch_size=4, ahead=9, places=places) == 0
