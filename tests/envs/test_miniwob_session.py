import asyncio
import io
import json
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from PIL import Image

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    Drag,
    Finish,
    Home,
    Invalid,
    Key,
    Open,
    Point,
    Scroll,
    Type,
    Wait,
)
from cairn.data.ids import ElementId, SnapshotId, TemplateId
from cairn.data.observation import Element, Observation
from cairn.data.task import FromSnapshot, Root, Split, Task, Template
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.envs.miniwob.pages import SCREEN
from cairn.envs.miniwob.session import MiniwobSession
from cairn.errors import ConfigError, SessionError
from cairn.testing.memory import MemoryBlobs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
BLOBS = MemoryBlobs()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def environment() -> AsyncIterator[MiniwobEnvironment]:
    options = MiniwobOptions(limits=PoolLimits(pages_per_browser=3), accessibility=True)
    environment = MiniwobEnvironment(blobs=BLOBS, options=options)
    yield environment
    await environment.close()


def task_of(name: str, index: int = 0) -> Task:
    return Task(template=Template(id=TemplateId(f"miniwob/{name}"), max_turns=10), split=Split.TRAIN, index=index)


async def opened(environment: MiniwobEnvironment, name: str, index: int = 0) -> MiniwobSession:
    return await environment.open(task_of(name, index), start=Root())


def named(seen: Observation, label: str, role: str | None = None) -> Element:
    return next(e for e in seen.elements if e.label == label and role in (None, e.role))


async def test_a_solved_task_pays_one_and_ends(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-test-2")
    assert session.goal == "Click button ONE."
    seen = await session.observe()
    step = await session.act(Click(named(seen, "ONE").id))
    evidence = await session.evidence()
    await session.close()
    assert (step.done, evidence.done, evidence.raw_reward) == (True, True, 1.0)


async def test_a_wrong_click_ends_with_minus_one(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-test-2")
    seen = await session.observe()
    step = await session.act(Click(named(seen, "TWO").id))
    evidence = await session.evidence()
    await session.close()
    assert (step.done, evidence.done, evidence.raw_reward) == (True, True, -1.0)


async def test_a_point_is_a_fraction_of_the_screen(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-test-2", 3)
    seen = await session.observe()
    assert (await session.act(Click(named(seen, "ONE").box.center))).done
    assert (await session.evidence()).raw_reward == 1.0
    await session.close()


async def test_the_screenshot_is_the_task_s_own_part_of_the_page(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-color", 1)
    seen = await session.observe()
    await session.close()
    assert seen.image is not None
    with Image.open(io.BytesIO(BLOBS.get(seen.image))) as image:
        assert image.size == (160, 210)
        for color, rgb in {"olive": (128, 128, 0), "magenta": (255, 0, 255)}.items():
            center = named(seen, color).box.center
            assert image.getpixel((int(center.x * 160), int(center.y * 210))) == rgb


async def test_elements_are_numbered_from_one_with_roles_labels_and_values(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "login-user", 1)
    seen = await session.observe()
    assert [(e.id, e.role, e.label, e.interactive) for e in seen.elements] == [
        (1, "input", "Username", True),
        (2, "input", "Password", True),
        (3, "button", "Login", True),
    ]
    assert "[1] textbox" in seen.accessibility
    await session.act(Type("vina", ElementId(1)))
    typed = await session.observe()
    await session.close()
    assert typed.elements[0].value == "vina"
    assert typed.elements[0].states == ("focused",)
    assert typed.digest != seen.digest


async def test_typing_with_a_target_replaces_and_without_one_appends(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "enter-text")
    field = next(e for e in (await session.observe()).elements if e.role == "input").id
    for action, value in [(Type("first", field), "first"), (Type("other", field), "other"),
                          (Type("wise"), "otherwise"), (Type("", field), ""), (Type("Ünï", field), "Ünï")]:  # fmt: skip
        assert (await session.act(action)).message == ""
        seen = await session.observe()
        assert next(e.value for e in seen.elements if e.id == field) == value
    await session.close()


@pytest.mark.parametrize(
    ("name", "role", "across"),
    [("choose-list", "select", 0.95), ("enter-date", "input", 0.93), ("enter-time", "input", 0.93)],
)
async def test_the_browsers_own_windows_stay_shut(
    environment: MiniwobEnvironment, name: str, role: str, across: float
) -> None:
    session = await opened(environment, name)
    box = next(e for e in (await session.observe()).elements if e.role == role).box
    for action in [
        Click(Point(box.left + box.width * across, box.center.y)),
        Key(" "),
        Key("F4"),
        Key("Alt+ArrowDown"),
    ]:
        await session.act(action)
        seen = await session.observe()  # an open window would hold up the frame
        assert "focused" in next(e for e in seen.elements if e.role == role).states
    await session.close()


async def test_an_option_of_a_list_stands_for_the_list(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-scroll-list")
    options = [e for e in (await session.observe()).elements if e.role == "option"]
    assert (await session.act(Type(options[1].label, options[0].id))).message == ""
    chosen = [e.label for e in (await session.observe()).elements if e.role == "option" and "selected" in e.states]
    assert chosen == [options[1].label]
    await session.close()


async def test_what_loses_the_focus_by_being_disabled_is_drawn_without_it(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "login-user-popup", 1)
    for _ in range(6):  # sooner or later a pop-up disables the fields
        seen = await session.observe()
        await session._page.drawn()
        await session._page.drawn()
        again = await session._page.screenshot()
        assert seen.image is not None
        assert BLOBS.get(seen.image) == SCREEN.cut(again)
        fields = [e for e in seen.elements if e.role == "input"]
        if "disabled" in fields[0].states:
            break
        await session.act(Click(fields[0].id))
    else:
        pytest.fail("no pop-up came")
    await session.close()


@pytest.mark.parametrize("index", range(4))
async def test_the_pointer_is_felt_where_hovering_asks_for_a_picture(
    environment: MiniwobEnvironment, index: int
) -> None:
    """While that picture is being loaded the icon has no size, and the browser may forget where the pointer is."""
    session = await opened(environment, "social-media", index)
    for label in ("reply", "retweet", "like"):
        seen = await session.observe()
        await session.act(Click(named(seen, label).id))
        await session.observe()
        x, y = session._page.pointer
        hovered = f"document.elementFromPoint({x}, {y}).matches(':hover')"
        assert await session._page.evaluate(hovered) is True
    await session.close()


async def test_a_native_select_takes_an_option_by_its_text(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "choose-list", 1)
    wanted = session.goal.removeprefix("Select ").removesuffix(" from the list and click Submit.")
    seen = await session.observe()
    select = next(e for e in seen.elements if e.role == "select")
    assert (await session.act(Type("no such thing", select.id))).message == "element 1 has no option 'no such thing'"
    assert (await session.act(Type(wanted, select.id))).message == ""
    seen = await session.observe()
    assert seen.elements[0].value == wanted
    await session.act(Click(named(seen, "Submit").id))
    assert (await session.evidence()).raw_reward == 1.0
    await session.close()


async def test_checked_boxes_say_so(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-checkboxes", 1)
    await session.act(Click((await session.observe()).elements[0].id))
    assert "checked" in (await session.observe()).elements[0].states
    await session.close()


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Click(ElementId(99)), "no element 99"),
        (Type("x", ElementId(99)), "no element 99"),
        (Drag(ElementId(1), ElementId(99)), "no element 99"),
        (Scroll(ElementId(99), 0.0, 0.5), "no element 99"),
        (Click(ElementId(0)), "no element 0"),
        (Click(ElementId(-1)), "no element -1"),
        (Key("Hyper+x"), "unknown key 'Hyper+x'"),
        (Back(), "back is not available here"),
        (Home(), "home is not available here"),
        (Open("example.com"), "open is not available here"),
        (Invalid("tap", "no such action"), "no such action"),
    ],
)
async def test_what_cannot_be_done_is_said_and_changes_nothing(
    environment: MiniwobEnvironment, action: Action, message: str
) -> None:
    session = await opened(environment, "click-shape", 1)
    before = await session.observe()
    step = await session.act(action)
    after = await session.observe()
    await session.close()
    assert (step.done, step.message, after.message) == (False, message, message)
    assert before.message == ""
    assert after.digest == before.digest


async def test_what_takes_no_text_says_so(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "use-slider", 1)
    await session.observe()
    assert (await session.act(Type("x", ElementId(1)))).message == "element 1 takes no text"
    await session.close()


async def test_a_number_of_an_element_that_has_gone_is_a_message(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "navigate-tree", 1)
    last = (await session.observe()).elements[-1].id
    await session._page.evaluate("document.querySelector('#area').remove()")
    assert (await session.act(Click(last))).message == f"no element {last}"
    await session.close()


@pytest.mark.parametrize("action", [Answer("42"), Finish()])
async def test_an_answer_ends_the_episode_without_the_page_s_verdict(
    environment: MiniwobEnvironment, action: Action
) -> None:
    session = await opened(environment, "click-test")
    await session.observe()
    step = await session.act(action)
    evidence = await session.evidence()
    await session.close()
    assert (step.done, evidence.done, evidence.raw_reward) == (True, False, 0.0)


async def test_no_clock_ends_or_devalues_an_episode(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-test")
    for _ in range(5):
        assert not (await session.act(Wait(60.0))).done
    seen = await session.observe()
    await session.act(Click(named(seen, "Click Me!").id))
    assert (await session.evidence()).raw_reward == 1.0
    await session.close()


async def test_what_is_scrolled_away_is_listed_and_can_be_clicked(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "social-media-all", 1)
    seen = await session.observe()
    submit = named(seen, "Submit")
    assert submit.box.top > 1.0
    assert (await session.act(Click(submit.id))).done
    await session.close()


async def test_scrolling_moves_the_page(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "social-media-all", 1)
    before = named(await session.observe(), "Submit").box.top
    assert (await session.act(Scroll(None, 0.0, 0.5))).message == ""
    after = named(await session.observe(), "Submit").box.top
    await session.close()
    assert after == pytest.approx(before - 0.5, abs=0.01)


@pytest.mark.parametrize("name", ["email-inbox", "choose-date", "click-dialog", "count-shape", "use-slider"])
async def test_a_seed_makes_the_same_episode_again(environment: MiniwobEnvironment, name: str) -> None:
    async def play() -> list[tuple[str, str, str | None]]:
        session = await opened(environment, name, 7)
        seen: list[tuple[str, str, str | None]] = []
        for action in (Click(ElementId(1)), Click(Point(0.5, 0.6)), Key("Tab"), Scroll(None, 0.0, 0.3)):
            shown = await session.observe()
            seen.append((session.goal, shown.digest, shown.image))
            if (await session.act(action)).done:
                break
        await session.close()
        return seen

    first, second, third = await play(), await play(), await play()
    assert first == second == third


async def test_seeds_make_different_episodes(environment: MiniwobEnvironment) -> None:
    digests: set[str] = set()
    for index in range(3):
        session = await opened(environment, "click-checkboxes", index)
        digests.add((await session.observe()).digest)
        await session.close()
    assert len(digests) == 3


async def test_evidence_holds_the_state_that_the_digest_is_of(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-checkboxes", 1)
    seen = await session.observe()
    state = json.loads((await session.evidence()).state)
    await session.close()
    assert state["done"] is False
    assert [row[1] for row in state["elements"]] == [e.label for e in seen.elements]


async def test_the_expert_solves_it_one_action_at_a_time(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "enter-text", 5)
    actions: list[Action] = []
    for _ in range(5):
        await session.observe()
        action = await session.expert_action()
        assert action is not None
        actions.append(action)
        if (await session.act(action)).done:
            break
    assert (await session.evidence()).raw_reward == 1.0
    assert [type(action) for action in actions] == [Type, Click]
    await session.close()


async def test_a_closed_session_refuses_everything(environment: MiniwobEnvironment) -> None:
    session = await opened(environment, "click-test")
    await session.close()
    await session.close()
    for refused in (session.observe(), session.act(Wait(1.0)), session.evidence(), session.expert_action()):
        with pytest.raises(SessionError, match="closed"):
            await refused


async def test_only_roots_and_known_tasks_can_be_opened(environment: MiniwobEnvironment) -> None:
    with pytest.raises(ConfigError, match="root only"):
        await environment.open(task_of("click-test"), start=FromSnapshot(id=SnapshotId("x")))
    with pytest.raises(ConfigError, match="no task 'click-tset'"):
        await environment.open(task_of("click-tset"), start=Root())


async def test_a_killed_browser_costs_its_sessions_alone() -> None:
    environment = MiniwobEnvironment(
        blobs=None, options=MiniwobOptions(limits=PoolLimits(browsers=2, pages_per_browser=1))
    )
    try:
        lost, kept = await opened(environment, "click-test"), await opened(environment, "click-test")
        assert environment._pool is not None
        os.kill(environment._pool.browsers[0].processes()[1], signal.SIGKILL)
        results = await asyncio.wait_for(asyncio.wait([asyncio.ensure_future(_try(s)) for s in (lost, kept)]), 20)
        assert sorted(task.result() for task in results[0]) == ["lost", "seen"]
        await lost.close()
        await kept.close()
        again = await opened(environment, "click-test")
        await again.observe()
    finally:
        scratch = environment._scratch
        await environment.close()
    assert scratch is not None
    assert not scratch.exists()


async def _try(session: MiniwobSession) -> str:
    try:
        await session.observe()
        await session.observe()
    except SessionError:
        return "lost"
    return "seen"


async def test_pictures_that_a_page_asks_for_late_are_waited_for(environment: MiniwobEnvironment) -> None:
    shown: set[tuple[str, str | None]] = set()
    for _ in range(5):
        session = await opened(environment, "choose-date", 1)
        await session.observe()
        await session.act(Click(ElementId(1)))  # the calendar brings icons of its own
        seen = await session.observe()
        shown.add((seen.digest, seen.image))
        assert session._page._idle.is_set()
        await session.close()
    assert len(shown) == 1
