from dataclasses import replace

import pytest

from cairn.data.trajectory import Ending, Evidence
from cairn.errors import VerifierError
from cairn.rewards.outcome import Success
from cairn.testing.groups import played_group
from rollout.stage import plan_for

PLAYED = played_group(plan_for(), [0.0]).members[0].trajectory


@pytest.mark.parametrize(("raw", "score"), [(1.0, 1.0), (0.999, 0.0), (0.5, 0.0), (0.0, 0.0), (-1.0, 0.0), (2.0, 0.0)])
async def test_only_the_full_reward_is_success(raw: float, score: float) -> None:
    evidence = Evidence(done=True, raw_reward=raw, state="")
    assert await Success().score(replace(PLAYED, evidence=evidence)) == score


async def test_without_evidence_there_is_no_verdict() -> None:
    lost = replace(PLAYED, ending=Ending.INFRASTRUCTURE_ERROR, evidence=None, error="gone")
    with pytest.raises(VerifierError):
        await Success().score(lost)
