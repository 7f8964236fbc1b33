"""The bugs that `just bugs` plants still fit the modules that they are planted in."""

import pytest

from planted_bugs import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=[str(number) for number in range(len(BUGS))])
def test_a_bug_can_be_planted(bug: Bug) -> None:
    compile(bug.planted(), bug.module, "exec")
