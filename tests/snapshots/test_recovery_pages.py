"""Mistakes made from saved states of real pages, and undone again: boxes, sections, tabs, branches of a tree, mails."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cairn.codecs.text import TextCodec
from cairn.data.action import Action, Click
from cairn.data.checkpoint import Checkpoint
from cairn.data.escapes import same_page
from cairn.data.history import Deed
from cairn.data.ids import TemplateId
from cairn.data.observation import Observation
from cairn.data.snapshot import StoreKind
from cairn.data.task import Root, Split, Task, Template
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.contained import MiniwobContainers
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.ports import ExpertSession
from cairn.rollout.recovery import Mistake, Rejection, Rescuer, Scenario, save_way
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.shelf import Shelf
from cairn.testing.memory import MemoryBlobs, MemoryEvents
from letter_tokenizer import LetterTokenizer
from snapshots.playing import MOST_STEPS
from snapshots.stores import places, store_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.enable_socket,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(
    loop_scope="module", scope="module", params=[StoreKind.CRIU, StoreKind.NATIVE, StoreKind.REPLAY]
)
async def pages(request: pytest.FixtureRequest) -> AsyncIterator[SnapshotEnvironment]:
    kind: StoreKind = request.param
    blobs = MemoryBlobs()
    limits = PoolLimits(browsers=1, pages_per_browser=2)
    environment = MiniwobEnvironment(blobs=blobs, options=MiniwobOptions(limits=limits))
    with places() as own:
        store = store_of(kind, environment, MiniwobContainers(blobs=blobs), places=own)
        saved = SnapshotEnvironment(
            environment, stores=[store], shelf=Shelf(own.disk / "shelf"), blobs=blobs, events=MemoryEvents()
        )
        yield saved
        await saved.close()
        await environment.close()


def task_of(name: str, index: int) -> Task:
    return Task(template=Template(id=TemplateId(f"miniwob/{name}"), max_turns=20), split=Split.TRAIN, index=index)


async def way_of(pages: SnapshotEnvironment, task: Task) -> tuple[Deed, ...]:
    session = await pages.open(task, start=Root())
    deeds: list[Deed] = []
    for _ in range(MOST_STEPS):
        seen = await session.observe()
        assert isinstance(session, ExpertSession)
        action = await session.expert_action()
        assert action is not None
        deeds.append(Deed(observation=seen, action=action))
        if (await session.act(action)).done:
            break
    await session.close()
    return tuple(deeds)


def another(seen: Observation, expert: Action, role: str) -> Action:
    """A click on the first thing of that kind that is neither the expert's nor chosen already."""
    return next(
        Click(e.id)
        for e in seen.elements
        if (e.role, e.interactive) == (role, True) and Click(e.id) != expert and "selected" not in e.states
    )


async def tried(pages: SnapshotEnvironment, task: Task, *, step: int, role: str) -> Scenario | Rejection:
    way = await way_of(pages, task)
    kept = await save_way(pages, task, way=way, wanted={step})
    checkpoint = Checkpoint(
        task=task,
        goal="",
        history=way[:step],
        observation=way[step].observation,
        expert=way[step].action,
        snapshot=kept[step],
    )
    wrong = another(checkpoint.observation, checkpoint.expert, role)
    mistake = Mistake(checkpoint=checkpoint, wrong=wrong, rest=[deed.action for deed in way[step:]])
    return await Rescuer(sessions=pages, codec=TextCodec(tokenizer=LetterTokenizer())).scenario(mistake)


@pytest.mark.parametrize(
    ("name", "role"), [("click-checkboxes", "checkbox"), ("navigate-tree", "item"), ("click-tab-2", "tab")]
)
async def test_a_way_back_is_found_from_what_was_ticked_opened_or_left_by_mistake(
    pages: SnapshotEnvironment, name: str, role: str
) -> None:
    """On some seeds what is clicked is right as well, or ends the episode."""
    for index in range(8):
        found = await tried(pages, task_of(name, index), step=0, role=role)
        if isinstance(found, Scenario):
            break
    else:
        raise AssertionError("no mistake could be undone")
    before = found.mistake.checkpoint.observation
    assert not same_page(before, found.escape[0].observation, focus=False)
    assert same_page(before, found.back, focus=False)


async def test_a_click_that_ends_the_episode_is_no_scenario(pages: SnapshotEnvironment) -> None:
    assert await tried(pages, task_of("click-link", 0), step=0, role="link") is Rejection.ENDED
