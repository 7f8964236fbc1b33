import pytest

from cairn.loop.budget import Budget


@pytest.mark.parametrize(
    ("budget", "updates", "seconds", "left"),
    [
        (Budget(updates=None, minutes=None), 0, 0.0, False),
        (Budget(updates=2, minutes=None), 1, 1e9, True),
        (Budget(updates=2, minutes=None), 2, 0.0, False),
        (Budget(updates=None, minutes=1.0), 10**9, 59.9, True),
        (Budget(updates=None, minutes=1.0), 0, 60.0, False),
        (Budget(updates=2, minutes=1.0), 1, 60.0, False),
        (Budget(updates=2, minutes=1.0), 2, 1.0, False),
        (Budget(updates=0, minutes=1.0), 0, 0.0, False),
        (Budget(updates=None, minutes=0.0), 0, 0.0, False),
    ],
)
def test_another_update_may_begin_while_every_given_limit_is_unused(
    budget: Budget, updates: int, seconds: float, *, left: bool
) -> None:
    assert budget.left(updates=updates, seconds=seconds) is left


def test_the_share_is_that_of_the_limit_that_ends_first() -> None:
    assert Budget(updates=10, minutes=1.0).share(updates=1, seconds=30.0) == 0.5
    assert Budget(updates=10, minutes=1.0).share(updates=9, seconds=30.0) == 0.9
    assert Budget(updates=10, minutes=None).share(updates=20, seconds=0.0) == 1.0
    assert Budget(updates=None, minutes=None).share(updates=5, seconds=5.0) == 0.0
