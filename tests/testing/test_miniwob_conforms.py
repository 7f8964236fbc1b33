"""The kit on real pages, of a kind each: a button, a form, boxes to tick, tabs."""

import pytest

from cairn.envs.miniwob.environment import MiniwobEnvironment
from cairn.testing.environment_check import check_environment
from cairn.testing.environment_report import Verdict
from cairn.testing.memory import MemoryBlobs
from cairn.testing.template_checks import CheckOptions

TASKS = ("click-test", "login-user", "click-checkboxes", "click-tab-2")


@pytest.mark.browser
async def test_miniwob_conforms() -> None:
    blobs = MemoryBlobs()
    environment = MiniwobEnvironment(blobs=blobs)
    chosen = tuple(t for t in environment.templates if t.id.removeprefix("miniwob/") in TASKS)
    assert len(chosen) == len(TASKS)
    report = await check_environment(environment, blobs=blobs, options=CheckOptions(templates=chosen, indices=(0, 1)))
    assert [(r.template, r.check, r.finding.reason) for r in report.results if r.finding.verdict is Verdict.FAIL] == []
