"""The example of four branches does what it says."""

from pathlib import Path

import pytest
from branches import branches

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket]


async def test_four_branches_of_one_state_end_in_four_states(tmp_path: Path) -> None:
    states = await branches(tmp_path, store="native")
    assert len(states) == len({state.rpartition(" ")[2] for state in states}) == 4
