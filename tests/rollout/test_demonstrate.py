import math

import pytest

from cairn.data.task import Template
from cairn.data.trajectory import Ending
from cairn.rollout.demonstrate import EXPERT_VERSION, run_demonstration
from cairn.testing.faults import Call, Fault
from cairn.testing.scripted import COUNT, TEMPLATES, ScriptedEnvironment, ScriptedSession
from cairn.testing.scripted_policy import ScriptedCodec
from rollout.stage import plan_for


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.id)
async def test_an_expert_shows_how_it_is_done_in_the_policys_own_tokens(template: Template) -> None:
    environment, codec = ScriptedEnvironment(), ScriptedCodec()
    shown = await run_demonstration(plan_for(template), sessions=environment, codec=codec)
    assert shown.ending is Ending.DONE
    assert shown.evidence is not None
    assert shown.evidence.raw_reward == 1.0
    for turn in shown.turns:
        assert (turn.completion.versions == EXPERT_VERSION).all()
        assert codec.parse(shown.goal, turn.completion.token_ids, turn.observation) == turn.action
    assert environment.live == 0


@pytest.mark.parametrize("call", [Call.OPEN, Call.OBSERVE, Call.ACT, Call.EVIDENCE, Call.CLOSE])
@pytest.mark.parametrize("hangs", ["hangs", "fails"])
async def test_what_fails_outside_is_recorded(call: Call, hangs: str) -> None:
    fault = Fault(call=call, delay=math.inf) if hangs == "hangs" else Fault(call=call, error=OSError("gone"))
    environment = ScriptedEnvironment(faults=[fault])
    shown = await run_demonstration(plan_for(), sessions=environment, codec=ScriptedCodec())
    assert shown.ending is Ending.INFRASTRUCTURE_ERROR
    assert shown.error
    assert environment.live == 0


async def test_an_action_that_the_codec_cannot_say_ends_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = ScriptedCodec()
    monkeypatch.setattr(codec, "answers", lambda goal, action, seen: ())
    shown = await run_demonstration(plan_for(), sessions=ScriptedEnvironment(), codec=codec)
    assert (shown.ending, shown.turns) == (Ending.OUT_OF_TURNS, ())


async def test_an_expert_that_knows_nothing_ends_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: ScriptedSession) -> None:
        return None

    monkeypatch.setattr(ScriptedSession, "expert_action", nothing)
    shown = await run_demonstration(plan_for(COUNT), sessions=ScriptedEnvironment(), codec=ScriptedCodec())
    assert (shown.ending, shown.turns) == (Ending.OUT_OF_TURNS, ())


async def test_turns_are_bounded_for_experts_too() -> None:
    shown = await run_demonstration(plan_for(depth=2), sessions=ScriptedEnvironment(), codec=ScriptedCodec())
    assert (shown.ending, len(shown.turns)) == (Ending.OUT_OF_TURNS, 2)
