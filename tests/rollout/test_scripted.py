"""The doubles are parts like any other, and keep the contracts of those."""

import asyncio
from pathlib import Path

import pytest

from cairn.data.action import Action, Answer, Back, Click, DoubleClick, Finish, Point, Type, Wait
from cairn.data.ids import ElementId, PolicyVersion, SnapshotId
from cairn.data.task import FromSnapshot, Recorded, Root, Template
from cairn.errors import ConfigError, SessionError
from cairn.testing.faults import Call, Fault
from cairn.testing.memory import MemoryBlobs
from cairn.testing.scripted import CHOOSE, COUNT, ENTER, TEMPLATES, ScriptedEnvironment
from cairn.testing.scripted_policy import FINISH, IMAGE, ScriptedCodec, ScriptedEngine, ScriptedLearner, replay
from cairn.testing.session_contract import SESSION_CONTRACT, Check
from cairn.testing.virtual_time import run_virtually
from rollout.stage import PLUS, Stage, plan_for


@pytest.mark.parametrize("check", SESSION_CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.id)
async def test_scripted_sessions_keep_the_contract(template: Template, check: Check) -> None:
    await check(ScriptedEnvironment(blobs=MemoryBlobs()), plan_for(template).task)


@pytest.mark.parametrize("index", range(12))
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.id)
async def test_the_expert_solves_every_task_within_its_turns(template: Template, index: int) -> None:
    environment = ScriptedEnvironment()
    assert environment.has_expert(template)
    session = await environment.open(plan_for(template, index=index).task, start=Root())
    for _ in range(template.max_turns):
        action = await session.expert_action()
        assert action is not None
        step = await session.act(action)
        if step.done:
            break
    assert (await session.evidence()).raw_reward == 1.0
    assert await session.expert_action() is None
    await environment.close()
    assert environment.live == 0


@pytest.mark.parametrize(
    ("template", "action", "message"),
    [
        (COUNT, Click(ElementId(9)), "no element 9"),
        (COUNT, Click(ElementId(3)), ""),
        (COUNT, Click(Point(0.99, 0.99)), ""),
        (COUNT, Wait(1.0), ""),
        (COUNT, Back(), "Back does nothing here"),
        (COUNT, Type("x"), "no text can be typed there"),
        (ENTER, Type("x", ElementId(7)), "no element 7"),
        (ENTER, Type("x", Point(0.99, 0.99)), "no text can be typed there"),
    ],
)
async def test_what_leads_nowhere_changes_nothing(template: Template, action: Action, message: str) -> None:
    session = await ScriptedEnvironment().open(plan_for(template).task, start=Root())
    before = await session.observe()
    step = await session.act(action)
    assert (step.done, step.message) == (False, message)
    assert await session.observe() == before


async def test_a_point_presses_what_is_under_it() -> None:
    session = await ScriptedEnvironment().open(plan_for(COUNT).task, start=Root())
    seen = await session.observe()
    await session.act(DoubleClick(seen.elements[0].box.center))
    assert (await session.observe()).elements[2].label == "1"


async def test_an_episode_that_is_over_stays_over() -> None:
    session = await ScriptedEnvironment().open(plan_for(CHOOSE).task, start=Root())
    await session.act(Answer("yes"))
    step = await session.act(Click(ElementId(1)))
    assert (step.done, step.message) == (True, "the episode is over")
    assert (await session.evidence()).raw_reward == 0.0


async def test_pages_that_differ_look_different() -> None:
    blobs = MemoryBlobs()
    session = await ScriptedEnvironment(blobs=blobs).open(plan_for(COUNT).task, start=Root())
    first = await session.observe()
    await session.act(Click(ElementId(1)))
    second = await session.observe()
    assert first.image is not None
    assert second.image is not None
    assert blobs.get(first.image) != blobs.get(second.image)


async def test_a_closed_session_does_nothing_more() -> None:
    session = await ScriptedEnvironment().open(plan_for().task, start=Root())
    await session.close()
    with pytest.raises(SessionError, match="closed"):
        await session.observe()


async def test_a_snapshot_nobody_took_cannot_be_opened() -> None:
    with pytest.raises(SessionError, match="no snapshot"):
        await ScriptedEnvironment().open(plan_for().task, start=FromSnapshot(id=SnapshotId("?")))


async def test_a_recorded_state_cannot_be_opened() -> None:
    environment = ScriptedEnvironment()
    session = await environment.open(plan_for().task, start=Root())
    start = Recorded(goal="", observation=await session.observe(), expert=Finish())
    with pytest.raises(ConfigError):
        await environment.open(plan_for().task, start=start)


async def test_prompts_extend_the_ones_before_and_carry_their_images() -> None:
    codec = ScriptedCodec(extend=True, images=True)
    stage = Stage(codec=codec)
    stage.environment = ScriptedEnvironment(blobs=MemoryBlobs())
    played = await type(stage.episodes)(
        sessions=stage.environment,
        engine=stage.engine,
        codec=codec,
        sampling=stage.episodes.sampling,
        limits=stage.limits,
        clock=stage.episodes.clock,
        events=stage.events,
    ).run(plan_for(), sibling=0)
    first, second = played.turns[0].prompt, played.turns[1].prompt
    assert second.token_ids[: first.token_ids.shape[0]].tolist() == first.token_ids.tolist()
    assert second.images[:1] == first.images
    assert (second.token_ids == IMAGE).sum() == len(second.images) == 2
    assert IMAGE in codec.forbidden_ids


@pytest.mark.parametrize("action", [Click(ElementId(2)), Finish(), Type("blue", ElementId(1))])
async def test_what_the_codec_says_it_can_read(action: Action) -> None:
    codec = ScriptedCodec()
    session = await ScriptedEnvironment().open(plan_for().task, start=Root())
    seen = await session.observe()
    (answer,) = codec.answers("", codec.primitive(action, seen), seen)
    assert codec.parse("", answer, seen) == action
    assert int(answer[-1]) in codec.stop_ids
    assert codec.answers("", Back(), seen) == ()


async def test_engine_and_learner_move_together(tmp_path: Path) -> None:
    engine, learner = ScriptedEngine(replay(FINISH)), ScriptedLearner()
    await engine.update(PolicyVersion(3))
    assert engine.version == 3
    await engine.close()
    assert engine.closed
    learner.save(tmp_path / "kept")
    learner.load(tmp_path / "kept")
    assert learner.version == 0


def test_a_deadlock_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairn.testing.virtual_time._PATIENCE", 0.01)

    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run_virtually(stuck())


def test_virtual_time_costs_no_real_time() -> None:
    async def sleep() -> float:
        await asyncio.sleep(86_400.0)
        return asyncio.get_running_loop().time()

    assert run_virtually(sleep()) == pytest.approx(86_400.0)


async def test_a_fault_strikes_where_it_is_told_to() -> None:
    stage = Stage(answers=replay(PLUS), faults=[Fault(call=Call.ACT, session=1, nth=2, error=OSError("x"))])
    played = [await stage.episodes.run(plan_for(), sibling=s) for s in range(3)]
    assert [t.error for t in played] == [None, "act, turn 2: OSError: x", None]
