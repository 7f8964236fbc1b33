"""Pages of states: each can be solved, and none is solved where its state is gone."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from cairn.data.action import Action, Click
from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.observation import Observation
from cairn.data.task import FromSnapshot, Root, Split, Task, Template
from cairn.data.trajectory import Evidence
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.states.environment import PROPERTIES, StatesEnvironment
from cairn.envs.states.server import PageServer
from cairn.envs.states.session import SITE, StatesSession
from cairn.errors import ConfigError, SessionError
from cairn.testing.memory import MemoryBlobs

BLOBS = MemoryBlobs()
# what is seen of a page, and what can be told of it and to another one
TOLD = {"local-storage", "session-storage", "cookies", "text", "focus", "scroll"}

pytestmark = pytest.mark.enable_socket
F = TypeVar("F", bound=Callable[..., Awaitable[None]])


def browser_test(test: F) -> F:
    return pytest.mark.browser(pytest.mark.asyncio(loop_scope="module")(test))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def states() -> AsyncIterator[StatesEnvironment]:
    environment = StatesEnvironment(blobs=BLOBS, limits=PoolLimits(browsers=1, pages_per_browser=4))
    yield environment
    await environment.close()


def task_of(name: str, index: int = 3) -> Task:
    return Task(template=Template(id=TemplateId(f"states/{name}"), max_turns=12), split=Split.TRAIN, index=index)


async def step(session: StatesSession) -> bool:
    await session.observe()
    action = await session.expert_action()
    assert action is not None
    return (await session.act(action)).done


async def finished(session: StatesSession) -> Evidence:
    """The expert plays on to the end."""
    while not await step(session):
        pass
    evidence = await session.evidence()
    await session.close()
    return evidence


def button(seen: Observation, label: str) -> Action:
    return Click(next(element.id for element in seen.elements if (element.role, element.label) == ("button", label)))


def complaint(evidence: Evidence) -> str:
    return json.loads(evidence.state)["complaint"]


@browser_test
@pytest.mark.parametrize("name", PROPERTIES)
async def test_the_plan_of_a_page_brings_its_state_about(states: StatesEnvironment, name: str) -> None:
    evidence = await finished(await states.open(task_of(name), start=Root()))
    assert (evidence.done, evidence.raw_reward, complaint(evidence)) == (True, 1.0, "")


@browser_test
@pytest.mark.parametrize("name", PROPERTIES)
async def test_a_page_on_which_nothing_was_done_complains(states: StatesEnvironment, name: str) -> None:
    session = await states.open(task_of(name), start=Root())
    assert (await session.act(button(await session.observe(), "check"))).done
    evidence = await session.evidence()
    assert evidence.raw_reward == 0
    assert complaint(evidence)
    await session.close()


@browser_test
async def test_the_pages_know_the_same_properties_as_the_environment(states: StatesEnvironment) -> None:
    session = await states.open(task_of("heap"), start=Root())
    assert await session._page.evaluate("__cairn.names().sort().join()") == ",".join(sorted(PROPERTIES))
    assert [template.id for template in states.templates] == [f"states/{name}" for name in PROPERTIES]
    await session.close()


@browser_test
@pytest.mark.parametrize("name", ["local-storage", "cookies", "indexeddb"])
async def test_sessions_share_no_storage(states: StatesEnvironment, name: str) -> None:
    assert (await finished(await states.open(task_of(name), start=Root()))).raw_reward == 1
    session = await states.open(task_of(name), start=Root())
    await session.act(button(await session.observe(), "check"))
    assert (await session.evidence()).raw_reward == 0
    await session.close()


@browser_test
@pytest.mark.parametrize("name", sorted(TOLD))
async def test_what_an_exported_state_covers_is_there_again(states: StatesEnvironment, name: str) -> None:
    first = await states.open(task_of(name), start=Root())
    await step(first)
    again = await states.import_state(task_of(name), await first.export_state())
    seen, shown = await first.observe(), await again.observe()
    assert (shown.digest, shown.image) == (seen.digest, seen.image)
    assert (await finished(again)).raw_reward == 1
    assert (await finished(first)).raw_reward == 1


@browser_test
async def test_what_an_exported_state_leaves_out_is_said_and_gone(states: StatesEnvironment) -> None:
    assert "variables and functions of scripts" in states.uncovered
    first = await states.open(task_of("heap"), start=Root())
    await step(first)
    assert complaint(await finished(await states.import_state(task_of("heap"), await first.export_state())))
    await first.close()


@browser_test
async def test_what_moves_unseen_changes_neither_the_digest_nor_the_picture(states: StatesEnvironment) -> None:
    for name in ("interval", "animation", "clock"):
        session = await states.open(task_of(name), start=Root())
        await step(session)
        first, *others = [await session.observe() for _ in range(3)]
        assert all((seen.digest, seen.image) == (first.digest, first.image) for seen in others)
        await session.close()


@browser_test
async def test_while_a_dialog_is_open_the_rest_is_disabled(states: StatesEnvironment) -> None:
    session = await states.open(task_of("dialog"), start=Root())
    await step(session)
    usable = [e.label for e in (await session.observe()).elements if e.interactive and "disabled" not in e.states]
    assert usable == ["inside"]
    await session.close()


@browser_test
async def test_whoever_goes_on_with_a_page_knows_of_its_requests_under_way(states: StatesEnvironment) -> None:
    session = await states.open(task_of("fetch"), start=Root())
    await step(session)
    left = session.state().page
    assert len(left.pending) == 1
    assert states._running is not None
    (browser,) = states._running.pool.browsers
    again = browser.page_in(left, outside=True)
    assert await again.requests_done()
    assert again.state().pending == ()
    assert not await again.requests_done()
    await session.close()


@browser_test
async def test_bad_requests_are_refused_in_one_sentence(states: StatesEnvironment) -> None:
    with pytest.raises(ConfigError, match="states has no task 'nothing'; there are: heap, timer"):
        await states.open(task_of("nothing"), start=Root())
    with pytest.raises(ConfigError, match="at a task's root only, not at a FromSnapshot"):
        await states.open(task_of("heap"), start=FromSnapshot(id=SnapshotId("a")))
    with pytest.raises(SessionError, match="the saved session is damaged"):
        await states.import_state(task_of("heap"), b'{"step": "one"}')
    session = await states.open(task_of("heap"), start=Root())
    await session.close()
    await session.close()
    with pytest.raises(SessionError, match="the session is closed"):
        await session.observe()


# ── the server ────────────────────────────────────────────────────────────────


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    running = PageServer(site=SITE, downloads=tmp_path)
    yield running
    running.close()


async def got(server: PageServer, path: str) -> str:
    def get() -> str:
        with urllib.request.urlopen(f"{server.origin}{path}", timeout=20) as answer:
            return answer.read().decode()

    return await asyncio.to_thread(get)


async def test_the_server_has_the_pages_and_what_was_downloaded(server: PageServer, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("kept")
    assert await got(server, "/late.txt") == "late\n"
    assert await got(server, "/files/note.txt") == "kept"


@pytest.mark.parametrize("path", ["/files/../../etc/passwd", "/../server.py", "/files/other.txt", "/files//etc/passwd"])
async def test_the_server_has_nothing_else(server: PageServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as failure:
        await got(server, path)
    failure.value.close()


async def test_a_slow_answer_does_not_hold_up_closing(server: PageServer) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    waiting = asyncio.create_task(got(server, "/late.txt?slow=9000"))
    while not any("process_request" in thread.name for thread in threading.enumerate()):  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0)
    await asyncio.to_thread(server.close)
    assert await waiting == "late\n"
    assert loop.time() - begun < 8
