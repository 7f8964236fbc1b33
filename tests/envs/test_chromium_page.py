import asyncio
import io
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from cairn.envs.chromium.browser import Browser
from cairn.envs.chromium.discovery import Channel, find_browser
from cairn.envs.chromium.keys import parse_chord
from cairn.envs.chromium.page import Page
from cairn.errors import SessionError, SessionTimeoutError, SetupError

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PAGE = """<!doctype html><body style="margin:0">
<input id=field style="position:absolute;left:0;top:0;width:100px;height:20px">
<div id=pad style="position:absolute;left:0;top:40px;width:200px;height:60px;background:#00f"></div>
<div id=list style="position:absolute;left:0;top:110px;width:200px;height:50px;overflow:auto">
  <div style="height:900px">long</div></div>
<script>
window.seen = [];
for (const kind of ['mousedown', 'mousemove', 'mouseup', 'click', 'dblclick', 'contextmenu'])
  pad.addEventListener(kind, (e) => seen.push([kind, e.isTrusted, e.clientX, e.clientY, e.buttons, e.detail]));
</script>"""


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=list(Channel))
async def browser(request: pytest.FixtureRequest) -> AsyncIterator[Browser]:
    try:
        binary = find_browser(channel=request.param)
    except SetupError as missing:
        find_browser()  # without any there is nothing to test, and that is no reason to skip
        pytest.skip(str(missing))
    with tempfile.TemporaryDirectory() as root:
        started = await Browser.start(binary=binary, root=Path(root))
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, tmp_path: Path) -> AsyncIterator[Page]:
    tab = await browser.new_page(width=240, height=180)
    (tmp_path / "page.html").write_text(PAGE)
    await tab.navigate((tmp_path / "page.html").as_uri())
    yield tab
    await browser.close_page(tab)


async def kinds(page: Page) -> object:
    return await page.evaluate("seen.filter(s => s[0] !== 'mousemove').map(s => s[0])")


async def test_frames_without_a_picture_are_tried_again_and_then_the_page_is_stirred(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await page.screenshot()
    really, empty = page._frames.screenshot, [1]

    async def screenshot() -> bytes:
        return b"" if empty and empty.pop() else await really()

    monkeypatch.setattr(page._frames, "screenshot", screenshot)
    assert await page.screenshot() == before
    assert await page.evaluate("document.documentElement.hasAttribute('style')") is False
    empty[:] = [1, 1]
    with pytest.raises(SessionError, match="frames without a picture"):
        await page.screenshot()


async def test_a_click_is_a_trusted_press_and_release_where_it_was_aimed(page: Page) -> None:
    await page.click(30, 60)
    assert await page.evaluate("seen.map(s => s.slice(0, 5))") == [
        ["mousemove", True, 30, 60, 0],
        ["mousedown", True, 30, 60, 1],
        ["mouseup", True, 30, 60, 0],
        ["click", True, 30, 60, 0],
    ]


async def test_two_clicks_are_a_double_click_and_the_right_button_opens_a_menu(page: Page) -> None:
    await page.click(30, 60, count=2)
    assert await kinds(page) == ["mousedown", "mouseup", "click", "mousedown", "mouseup", "click", "dblclick"]
    await page.evaluate("seen.length = 0")
    await page.click(30, 60, button="right")
    assert await page.evaluate("seen.some(s => s[0] === 'contextmenu')")


async def test_a_drag_moves_with_the_button_held(page: Page) -> None:
    await page.drag((10, 50), (70, 90))
    moves = await page.evaluate("seen.filter(s => s[0] === 'mousemove' && s[4] === 1).map(s => [s[2], s[3]])")
    assert isinstance(moves, list)
    assert len(moves) >= 3
    assert moves[-1] == [70, 90]


async def test_typing_presses_keys_where_there_are_some_and_inserts_the_rest(page: Page) -> None:
    await page.evaluate("window.keys = []; field.addEventListener('keydown', (e) => keys.push(e.key))")
    await page.click(50, 10)
    await page.insert("aé!")
    assert await page.evaluate("[field.value, keys]") == ["aé!", ["a", "!"]]


async def test_selecting_all_lets_typing_replace(page: Page) -> None:
    await page.evaluate("field.value = 'old'")
    await page.click(50, 10)
    chord = parse_chord("Control+a")
    assert chord is not None
    await page.strike(chord)
    await page.insert("new")
    assert await page.evaluate("field.value") == "new"


async def test_the_wheel_scrolls_what_is_under_it(page: Page) -> None:
    for expected in (60, 120):
        await page.wheel(50, 130, 0, 60)
        assert await page.evaluate("list.scrollTop") == expected
    await page.screenshot()


async def test_the_clock_moves_only_when_it_is_told_to(page: Page) -> None:
    started = await page.evaluate("window.fired = []; setTimeout(() => fired.push('once'), 300); Date.now()")
    assert await page.evaluate("[Date.now(), fired]") == [started, []]
    await page.evaluate("__cairnWorld.advance(299)")
    assert await page.evaluate("fired") == []
    await page.evaluate("__cairnWorld.advance(1)")
    assert await page.evaluate("[Date.now() - 300, fired]") == [started, ["once"]]


async def test_settling_waits_for_what_happens_once_but_not_for_what_repeats(page: Page) -> None:
    script = """window.ticks = 0; window.late = 0; setInterval(() => ticks++, 100);
        setTimeout(() => setTimeout(() => late++, 300), 300); __cairnWorld.settle(100, 500, 1000)"""
    await page.evaluate(script)
    assert await page.evaluate("[late, ticks]") == [1, 6]


async def test_random_numbers_repeat_with_the_page(page: Page) -> None:
    draw = "[Math.random(), Math.random(), crypto.randomUUID()]"
    first = await page.evaluate(draw)
    await page.navigate(str(await page.evaluate("location.href")))
    assert await page.evaluate(draw) == first


async def test_a_dialog_does_not_stop_the_page(page: Page) -> None:
    assert await page.evaluate("confirm('really?')") is True


async def test_a_page_cannot_reach_the_network(page: Page) -> None:
    said = await page.evaluate("fetch('http://127.0.0.1:1/').then(() => 'reached', () => 'refused')")
    assert said == "refused"


async def test_a_script_that_fails_says_why(page: Page) -> None:
    with pytest.raises(SessionError, match="nothing is not defined"):
        await page.evaluate("nothing")


async def test_a_wait_that_runs_out_says_what_for_and_marks_the_page(page: Page) -> None:
    with pytest.raises(SessionTimeoutError, match="the page's scripts"):
        await page.evaluate("new Promise(() => {})", seconds=0.05)
    assert page.broken


async def test_a_document_that_is_not_there_marks_the_page(page: Page, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="ERR_FILE_NOT_FOUND"):
        await page.navigate((tmp_path / "nowhere.html").as_uri())
    assert page.broken


async def test_a_cancelled_input_marks_the_page(page: Page) -> None:
    task = asyncio.ensure_future(page.evaluate("new Promise(() => {})"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert page.broken


async def test_a_picture_shows_what_the_page_shows(page: Page) -> None:
    def pixel(png: bytes) -> object:
        return Image.open(io.BytesIO(png)).convert("RGB").getpixel((100, 70))

    assert pixel(await page.screenshot()) == (0, 0, 255)
    await page.evaluate("pad.style.background = '#0f0'")
    assert pixel(await page.screenshot()) == (0, 255, 0)


async def test_a_request_under_way_is_waited_for_unless_an_earlier_document_made_it(page: Page) -> None:
    assert not await page.requests_done()
    page._on_request({"requestId": "old", "loaderId": "gone", "request": {"url": "file:///old.png"}})
    assert not await page.requests_done()
    page._on_request({"requestId": "new", "loaderId": page._document, "request": {"url": "file:///new.png"}})
    with pytest.raises(SessionTimeoutError, match="the page's requests to end"):
        await page.requests_done(seconds=0.05)
    waiting = asyncio.ensure_future(page.requests_done())
    await asyncio.sleep(0)
    page._on_request_end({"requestId": "new"})
    assert await waiting


async def test_the_document_is_known_by_the_requests_it_makes(page: Page, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "late.png")
    before = page.traffic
    await page.evaluate(
        "new Promise((done) => { const late = new Image(); late.onload = done; late.src = 'late.png'; })"
    )
    await page.evaluate("1")
    assert page.traffic == before + 2
    assert not page._pending
    assert page._document


async def test_a_page_whose_process_is_gone_fails_at_once_and_is_not_used_again(page: Page) -> None:
    waiting = asyncio.ensure_future(page.evaluate("new Promise(() => {})"))
    await page.evaluate("1")
    page.send("Page.crash")
    with pytest.raises(SessionError, match=r"the page crashed"):
        await asyncio.wait_for(waiting, 10)
    with pytest.raises(SessionError, match=r"the page crashed"):
        await page.evaluate("1")
    assert page.broken
