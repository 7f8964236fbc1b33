"""The scripted experts solve their tasks, one action at a time, and the documentation says which they are."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from cairn.data.action import Action, Invalid
from cairn.data.task import Root, Split, Task, Template
from cairn.envs.miniwob.environment import MiniwobEnvironment
from cairn.envs.miniwob.experts.tasks import EXPERT_TASKS
from cairn.envs.miniwob.pages import expert_script, registered_tasks

_PAGE = Path(__file__).parents[2] / "docs" / "experts.md"
_REPRESENTATIVE = (
    "click-button", "click-checkboxes", "click-tab-2", "click-collapsible-2", "login-user", "enter-text",
    "use-autocomplete", "choose-list", "email-inbox", "search-engine", "drag-box", "guess-number", "enter-date",
)  # fmt: skip


def _documented() -> dict[str, tuple[int, int]]:
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (\d+)/(\d+) \|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (int(solved), int(of)) for name, solved, of in rows}


def test_experts_are_for_registered_tasks() -> None:
    assert set(registered_tasks()) >= EXPERT_TASKS


def test_every_listed_task_has_a_script_and_every_script_is_listed() -> None:
    named = set(re.findall(r'^  "([a-z0-9-]+)":', expert_script(), re.MULTILINE))
    assert named == EXPERT_TASKS


def test_every_expert_that_an_environment_claims_is_documented() -> None:
    environment = MiniwobEnvironment(blobs=None)
    claimed = {t.id.removeprefix("miniwob/") for t in environment.templates if environment.has_expert(t)}
    assert claimed == set(_documented())


def test_at_least_thirty_experts_are_documented_to_solve_95_percent_of_20_seeds() -> None:
    sure = [name for name, (solved, of) in _documented().items() if of >= 20 and solved >= 0.95 * of]
    assert len(sure) >= 30


# ── in the browser ────────────────────────────────────────────────────────────


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment() -> AsyncGenerator[MiniwobEnvironment]:
    opened = MiniwobEnvironment(blobs=None)
    yield opened
    await opened.close()


def _template(environment: MiniwobEnvironment, name: str) -> Template:
    return next(t for t in environment.templates if t.id == f"miniwob/{name}")


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("index", [100, 101])
@pytest.mark.parametrize("name", _REPRESENTATIVE)
async def test_expert_solves_its_task_one_action_at_a_time(
    environment: MiniwobEnvironment, name: str, index: int
) -> None:
    template = _template(environment, name)
    session = await environment.open(Task(template=template, split=Split.HELD_OUT, index=index), start=Root())
    try:
        for _ in range(template.max_turns):
            await session.observe()
            action = await session.expert_action()
            assert isinstance(action, Action)
            assert not isinstance(action, Invalid)
            step = await session.act(action)
            assert step.message == ""
            if step.done:
                break
        evidence = await session.evidence()
    finally:
        await session.close()
    assert (evidence.done, evidence.raw_reward) == (True, 1.0)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["guess-number", "click-button-sequence", "find-greatest", "enter-date"])
async def test_asking_twice_without_acting_gives_the_same_action(environment: MiniwobEnvironment, name: str) -> None:
    template = _template(environment, name)
    session = await environment.open(Task(template=template, split=Split.HELD_OUT, index=102), start=Root())
    try:
        for _ in range(4):
            await session.observe()
            action = await session.expert_action()
            assert action == await session.expert_action()
            if action is None or (await session.act(action)).done:
                break
    finally:
        await session.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_a_task_without_an_expert_has_no_action(environment: MiniwobEnvironment) -> None:
    template = _template(environment, "terminal")
    assert not environment.has_expert(template)
    session = await environment.open(Task(template=template, split=Split.HELD_OUT, index=0), start=Root())
    try:
        assert await session.expert_action() is None
    finally:
        await session.close()
