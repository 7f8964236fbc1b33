"""Thoughts of a teacher: asked for over HTTP, kept where the action is right, and imitated before it."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from cairn.app.datasets import collect_recorded
from cairn.app.distillation import Dropped, TeacherOptions, build_teacher, distil
from cairn.codecs.text import TextCodec
from cairn.codecs.thinking import ThinkingCodec
from cairn.config import recipe as configuration
from cairn.data.recorded import RecordedState
from cairn.data.task import Split
from cairn.engines import chat
from cairn.engines.chat import ChatEndpoint
from cairn.engines.teacher import ChatTeacher, ReadingTeacher, load_teacher_prompt
from cairn.errors import ConfigError, EngineError
from cairn.loop.lessons import RecordedLessons
from cairn.store.recorded import Division, RecordedSet
from letter_tokenizer import LetterTokenizer

RECIPE = """
[environment]
name = "scripted"
templates = ["choose", "count"]
[policy]
threads = 1
[demonstrations]
per_template = 8
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    (folder / "recipe.toml").write_text(RECIPE)
    config = configuration.load(folder / "recipe.toml")
    asyncio.run(collect_recorded(config, folder / "set", division=Division(held_out=0.34, seed=1)))
    return folder / "set"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_PAUSES", (0.0, 0.0))


def answering(reply: Callable[[str], str | None]) -> ChatTeacher:
    """A teacher behind an endpoint that is told the question; None: it is broken."""

    def respond(request: httpx.Request) -> httpx.Response:
        asked = "\n".join(message["content"] for message in json.loads(request.content)["messages"][1:])
        text = reply(asked)
        if text is None:
            return httpx.Response(503)
        return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": text}}]})

    transport = httpx.MockTransport(respond)
    return ChatTeacher(endpoint=ChatEndpoint(url="http://host.invalid/v1", model="m", transport=transport))


def training(folder: Path) -> list[RecordedState]:
    return list(RecordedSet(folder).of(Split.TRAIN))


async def test_a_state_is_kept_with_the_thought_where_the_teachers_action_is_the_recorded_one(
    tmp_path: Path, base: Path
) -> None:
    def reply(asked: str) -> str:
        assert "Goal: " in asked
        assert "(100, 260) 600 x 150" in asked  # where the first element is
        return "<think>It is at the top.</think><action>click x [1]</action>"

    made = await distil(base, tmp_path / "out", teacher=answering(reply))
    right = {s.name for s in training(base) if repr(s.start.expert) == "Click(target=1)"}
    kept = training(tmp_path / "out")
    assert {state.name for state in kept} == right
    assert {state.start.thought for state in kept} == {"It is at the top."}
    assert (made.asked, made.kept) == (len(training(base)), len(right))
    assert dict(made.dropped) == {Dropped.WRONG: made.asked - made.kept}


async def test_held_out_states_are_taken_over_and_nobody_is_asked_about_them(tmp_path: Path, base: Path) -> None:
    await distil(base, tmp_path / "out", teacher=ReadingTeacher())
    before, after = (list(RecordedSet(folder).of(Split.HELD_OUT)) for folder in (base, tmp_path / "out"))
    assert sorted(s.name for s in before) == sorted(s.name for s in after)
    assert {state.start.thought for state in after} == {""}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("I do not know", Dropped.UNREADABLE),
        ("<action>click x [1]</action>", Dropped.NO_THOUGHT),
        ("<think>why not</think><action>wait 1</action>", Dropped.WRONG),
    ],
)
async def test_what_is_dropped_is_counted_by_reason(tmp_path: Path, base: Path, said: str, why: Dropped) -> None:
    with pytest.raises(ConfigError, match=rf"right with a thought at none of .* states .*{why}"):
        await distil(base, tmp_path / "out", teacher=answering(lambda asked: said))
    assert not (tmp_path / "out" / "set.json").exists()


async def test_an_endpoint_that_never_answers_ends_it(tmp_path: Path, base: Path) -> None:
    with pytest.raises(EngineError, match="status 503"):
        await distil(base, tmp_path / "out", teacher=answering(lambda asked: None))


async def test_an_endpoint_that_fails_now_and_then_costs_those_states_alone(tmp_path: Path, base: Path) -> None:
    failing = next(s.start.goal for s in training(base) if s.start.goal != training(base)[0].start.goal)

    def reply(asked: str) -> str | None:
        if f"Goal: {failing}\n" in asked:
            return None
        return "<think>why</think><action>click x [1]</action>"

    made = await distil(base, tmp_path / "out", teacher=answering(reply))
    assert dict(made.dropped)[Dropped.FAILED] > 0


async def test_a_thought_is_imitated_before_the_action_by_codecs_that_have_thoughts(tmp_path: Path, base: Path) -> None:
    await distil(base, tmp_path / "out", teacher=ReadingTeacher())
    states = training(tmp_path / "out")
    tokenizer = LetterTokenizer()
    thinking = RecordedLessons(states, ThinkingCodec(tokenizer=tokenizer))
    for state, lesson in zip(states, thinking, strict=True):
        text = tokenizer.decode([int(i) for i in lesson.answers[0]])
        assert text.startswith(f"<think>Next: {state.start.sub_goal}.</think><action>")
    plain = RecordedLessons(states, TextCodec(tokenizer=tokenizer))
    assert all("Next" not in tokenizer.decode([int(i) for i in lesson.answers[0]]) for lesson in plain)


async def test_the_double_can_think_at_different_lengths_and_names_the_step_last(tmp_path: Path, base: Path) -> None:
    await distil(base, tmp_path / "out", teacher=build_teacher(TeacherOptions(wordy=True)))
    states = training(tmp_path / "out")
    beginnings = {state.start.thought.partition("Next: ")[0] for state in states}
    assert "" in beginnings
    assert any(said.startswith("The goal: ") and "The page shows" not in said for said in beginnings)
    assert any("The page shows " in said and "nothing to click" not in said for said in beginnings)
    assert all(state.start.thought.endswith(f"Next: {state.start.sub_goal}.") for state in states)
    await distil(base, tmp_path / "again", teacher=build_teacher(TeacherOptions(wordy=True)))
    assert [s.start.thought for s in training(tmp_path / "again")] == [s.start.thought for s in states]


def test_a_teacher_without_a_model_or_with_a_prompt_that_shows_no_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs its model"):
        build_teacher(TeacherOptions(url="http://host.invalid/v1"))
    prompt = tmp_path / "prompt.toml"
    prompt.write_text('system = "s"\nuser = "{goal}"')
    with pytest.raises(ConfigError, match=r"no place \{page\}"):
        load_teacher_prompt(prompt)
