import pytest

from cairn.data.ids import TemplateId
from cairn.data.task import Template


@pytest.mark.parametrize(("limit", "depth"), [(None, 5), (3, 3), (9, 5)])
def test_a_rollout_is_as_long_as_its_template_allows_or_shorter(limit: int | None, depth: int) -> None:
    assert Template(id=TemplateId("t"), max_turns=5).depth(limit) == depth
