"""One tab: navigation, evaluation, trusted input, pictures. Every wait is bounded and says what it waited for."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from cairn.envs.chromium.connection import Connection, Reply
from cairn.envs.chromium.frames import PATIENCE, Frames, bounded
from cairn.envs.chromium.keys import KeyStroke, stroke_of
from cairn.errors import SessionError, SessionTimeoutError

T = TypeVar("T")

_BUTTONS = {"none": 0, "left": 1, "right": 2}
_DRAG_MOVES = 6
_SCROLL_FRAMES = 6
_SCROLLED = "__cairnWorld.scrolled()"
_LOAD_SECONDS = 20.0
_LOAD_PATIENCE = 0.5  # loading needs no frames, but a page's own scripts may
_SOON = 0.001  # a move of the pointer alone comes to the page with the next frame only
_INPUT_SECONDS = 10.0
_PICTURE_SECONDS = 10.0
_EVALUATE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What another driver of the same tab must know: the rest is in the browser."""

    target: str
    session: str
    document: str
    pointer: tuple[float, float]
    ticks: float  # of the last frame
    pending: tuple[tuple[str, str], ...] = ()  # requests under way, each with the document that asked


class Page:
    """A tab of a browser, used by one session at a time. Coordinates are CSS pixels of its viewport."""

    def __init__(
        self, *, connection: Connection, session: str, target: str, frames: Frames, state: PageState | None = None
    ) -> None:
        self.target = target
        self.session = session
        self._connection = connection
        self._frames = frames
        self._pending = {} if state is None else dict(state.pending)  # the document that asked, by request
        self._document = "" if state is None else state.document
        self.traffic = 0
        """Requests begun and ended so far."""
        self.pointer = (0.0, 0.0) if state is None else state.pointer
        """Where the mouse was last sent."""
        self._idle = asyncio.Event()
        if self._document not in self._pending.values():
            self._idle.set()
        self._load: asyncio.Future[None] | None = None
        self.broken = False
        """Something was cut short here: not to be used by another session."""
        for method, handler in {
            "Page.loadEventFired": self._on_load,
            "Page.javascriptDialogOpening": self._on_dialog,
            "Inspector.targetCrashed": self._on_crash,
            "Network.requestWillBeSent": self._on_request,
            "Network.loadingFinished": self._on_request_end,
            "Network.loadingFailed": self._on_request_end,
        }.items():
            connection.subscribe(session, method, handler)

    def state(self) -> PageState:
        """What `Browser.page_in` needs to drive this tab from elsewhere. No command may be under way."""
        if self.broken:
            raise SessionError("the page cannot be saved: it is broken")
        return PageState(
            target=self.target,
            session=self.session,
            document=self._document,
            pointer=self.pointer,
            ticks=self._frames.ticks,
            pending=tuple(self._pending.items()),
        )

    def send(self, method: str, parameters: Reply | None = None) -> asyncio.Future[Reply]:
        """Send a command of this page now."""
        return self._connection.send(method, parameters, session=self.session)

    async def prepare(self, *, script: str, alone: bool) -> None:
        """Set the tab up once: events, focus, and the script that runs before any other in each document.

        A page that is `alone` can load nothing but files.
        """
        blocked = [f"{scheme}://*" for scheme in ("http", "https", "ws", "wss", "ftp")] if alone else []
        setup = [
            self.send("Page.enable"),
            self.send("Network.enable"),
            self.send("Network.setBlockedURLs", {"urls": blocked}),
            self.send("Emulation.setFocusEmulationEnabled", {"enabled": True}),
            self.send("Page.addScriptToEvaluateOnNewDocument", {"source": script}),
        ]
        await self._wait(_all(setup), seconds=_LOAD_SECONDS, what="a new tab")

    # ── content ───────────────────────────────────────────────────────────────

    async def navigate(self, url: str) -> None:
        """Load a document from scratch, up to its load event."""
        self._load = asyncio.get_running_loop().create_future()
        self._document = ""
        self._pending.clear()
        reply = await self._wait(
            self.send("Page.navigate", {"url": url}), seconds=_LOAD_SECONDS, what=f"{url} to answer"
        )
        if reply.get("errorText"):
            self.broken = True  # Chromium's own page about it will load at any moment, and pass for the next document
            raise SessionError(f"{url}: {reply['errorText']}")
        self._document = str(reply.get("loaderId"))
        self._note_idle()
        await self._wait(
            self._frames.pump(self._load, patience=_LOAD_PATIENCE), seconds=_LOAD_SECONDS, what=f"{url} to load"
        )
        await self._frames.loaded()

    async def evaluate(self, expression: str, *, seconds: float = _EVALUATE_SECONDS) -> object:
        """The JSON value of an expression, or of the promise that it gives."""
        sent = self.send("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        reply = await self._wait(sent, seconds=seconds, what="the page's scripts to finish")
        details = reply.get("exceptionDetails")
        if details is not None:
            raise SessionError(f"the page's script failed: {_described(details)}")
        return cast("object", reply["result"].get("value"))

    async def requests_done(self, *, seconds: float = 10.0) -> bool:
        """Wait until nothing is being loaded; whether there was anything to wait for."""
        if self._idle.is_set():
            return False
        await self._wait(self._frames.pump(self._idle.wait()), seconds=seconds, what="the page's requests to end")
        return True

    async def screenshot(self) -> bytes:
        """The viewport as PNG, at one pixel per CSS pixel."""
        return await self._wait(self._taken(), seconds=_PICTURE_SECONDS, what="a picture")

    async def _taken(self) -> bytes:
        picture = await self._frames.screenshot()
        if not picture:  # a change brings one: change something, and change it back
            await self.evaluate("__cairnWorld.stir(true)")
            await self._frames.drawn()
            await self.evaluate("__cairnWorld.stir(false)")
            picture = await self._frames.screenshot()
        if not picture:
            raise SessionError("the browser draws frames without a picture")
        return picture

    async def drawn(self) -> None:
        """Let the browser draw, without a picture."""
        await self._wait(self._frames.drawn(), seconds=_INPUT_SECONDS, what="a frame")

    # ── input ─────────────────────────────────────────────────────────────────

    async def hover(self, x: float, y: float) -> None:
        """Move the pointer."""
        await self._perform([self._mouse("mouseMoved", x, y)], "the pointer", patience=_SOON)

    async def click(self, x: float, y: float, *, button: str = "left", count: int = 1) -> None:
        """Move there, then press and release `count` times."""
        events = [self._mouse("mouseMoved", x, y)]
        for nth in range(1, count + 1):
            events.append(self._mouse("mousePressed", x, y, button=button, nth=nth))
            events.append(self._mouse("mouseReleased", x, y, button=button, nth=nth))
        await self._perform(events, "a click")

    async def press(self, x: float, y: float) -> None:
        """Move there and hold the left button down."""
        await self._perform(
            [self._mouse("mouseMoved", x, y), self._mouse("mousePressed", x, y, button="left")], "a press"
        )

    async def release(self, x: float, y: float) -> None:
        """Let the left button go."""
        await self._perform([self._mouse("mouseReleased", x, y, button="left")], "a release")

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press at `start`, move in a few steps to `end`, release."""
        await self.press(*start)
        for step in range(1, _DRAG_MOVES + 1):
            share = step / _DRAG_MOVES
            x, y = (a + (b - a) * share for a, b in zip(start, end, strict=True))
            # one by one: the browser would merge moves that wait together
            await self._perform([self._mouse("mouseMoved", x, y, held="left")], "a drag", patience=_SOON)
        await self.release(*end)

    async def wheel(self, x: float, y: float, dx: float, dy: float) -> None:
        """Turn the wheel over a place, by CSS pixels."""
        before = await self.evaluate(_SCROLLED)
        event = {"type": "mouseWheel", "x": x, "y": y, "deltaX": dx, "deltaY": dy}
        events = [self._mouse("mouseMoved", x, y), self.send("Input.dispatchMouseEvent", event)]
        await self._perform(events, "the wheel", patience=_SOON)
        # the compositor scrolls some frames after the page has declined the event; where nothing scrolls, never
        for _ in range(_SCROLL_FRAMES):
            await self.drawn()
            if await self.evaluate(_SCROLLED) != before:
                break

    async def strike(self, *strokes: KeyStroke) -> None:
        """Press and release keys, one after the other."""
        await self._perform([event for stroke in strokes for event in self._stroke(stroke)], "a key")

    async def insert(self, text: str, *, after: Sequence[KeyStroke] = ()) -> None:
        """Type text into whatever has the focus, `after` some keys: a key each, or as an input method would."""
        events = [event for stroke in after for event in self._stroke(stroke)]
        for character in text:
            stroke = stroke_of(character)
            if stroke is None:
                events.append(self.send("Input.insertText", {"text": character}))
            else:
                events.extend(self._stroke(stroke))
        await self._perform(events, "typing")

    def _stroke(self, stroke: KeyStroke) -> tuple[asyncio.Future[Reply], asyncio.Future[Reply]]:
        return self.send("Input.dispatchKeyEvent", stroke.down()), self.send("Input.dispatchKeyEvent", stroke.up())

    def _mouse(
        self, kind: str, x: float, y: float, *, button: str = "none", nth: int = 1, held: str = "none"
    ) -> asyncio.Future[Reply]:
        self.pointer = (x, y)
        pressed = _BUTTONS[button] if kind == "mousePressed" else _BUTTONS[held]
        event: dict[str, object] = {"type": kind, "x": x, "y": y, "button": button, "buttons": pressed}
        if kind != "mouseMoved":
            event["clickCount"] = nth
        elif held != "none":
            event["button"] = held
        return self.send("Input.dispatchMouseEvent", event)

    async def _perform(self, events: list[asyncio.Future[Reply]], what: str, *, patience: float = PATIENCE) -> None:
        """Wait until the page has handled all of them."""
        handled = self._frames.pump(_all(events), patience=patience)
        await self._wait(handled, seconds=_INPUT_SECONDS, what=f"{what} to be handled by the page")

    async def _wait(self, waited: Awaitable[T], *, seconds: float, what: str) -> T:
        try:
            return await bounded(waited, seconds=seconds, what=what)
        except (SessionTimeoutError, asyncio.CancelledError):
            self.broken = True
            raise

    # ── events ────────────────────────────────────────────────────────────────

    def _on_load(self, _event: Reply) -> None:
        if self._load is not None and not self._load.done():
            self._load.set_result(None)

    def _on_crash(self, _event: Reply) -> None:
        """The process behind the page is gone, for want of memory perhaps: nobody will answer."""
        self.broken = True
        self._connection.lose(self.session, "the page crashed")
        self._on_load({})

    def _on_dialog(self, _event: Reply) -> None:
        """An alert would stop the page, and a confirmation is granted: nobody is there to read either."""
        self.send("Page.handleJavaScriptDialog", {"accept": True})

    def _on_request(self, event: Reply) -> None:
        if event["request"]["url"].startswith("data:"):
            return
        self._pending[event["requestId"]] = str(event.get("loaderId"))
        self._note_idle()

    def _on_request_end(self, event: Reply) -> None:
        self._pending.pop(event["requestId"], None)
        self._note_idle()

    def _note_idle(self) -> None:
        self.traffic += 1
        # requests of an earlier document are cut off without a word, and may be announced late
        if self._document in self._pending.values():
            self._idle.clear()
        else:
            self._idle.set()


async def _all(futures: list[asyncio.Future[Reply]]) -> None:
    for future in futures:
        await future


def _described(details: Reply) -> str:
    exception = cast("Reply", details.get("exception", {}))
    return str(exception.get("description") or details.get("text"))[:400]
