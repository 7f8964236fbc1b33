"""A GUI that needs no browser: three small pages with buttons, a text field and an expert. Faults on demand.

It is a real environment (seeded, deterministic, with screenshots, snapshots and evidence), so examples, tests and the
conformance kit use it in place of mocks.
"""

import asyncio
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from PIL import Image, ImageDraw

from cairn.data.action import Action, Answer, Click, DoubleClick, Finish, Invalid, Point, Target, Type, Wait
from cairn.data.ids import ElementId, ImageId, SnapshotId, TemplateId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import FromSnapshot, Recorded, Start, Task, Template
from cairn.data.trajectory import Evidence
from cairn.errors import ConfigError, SessionError
from cairn.ports import BlobStore, Step
from cairn.testing.faults import Call, Fault, strike

COUNT = Template(id=TemplateId("scripted/count"), max_turns=6)  # press + until the number is reached
CHOOSE = Template(id=TemplateId("scripted/choose"), max_turns=2)  # press the named button; the first press decides
ENTER = Template(id=TemplateId("scripted/enter"), max_turns=4)  # type the word, then press submit
TEMPLATES = (COUNT, CHOOSE, ENTER)
WORDS = ("red", "green", "blue", "black")

_SCREEN = (160, 210)  # as MiniWoB++ pages have it, with everything where the pixel policy looks


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    number: int = 0
    text: str = ""
    done: bool = False
    raw_reward: float = 0.0


_Seen: TypeAlias = tuple[str, str, str]  # role, label, value


class ScriptedSession:
    """One opened page. `closed` says whether it was given back."""

    def __init__(self, environment: "ScriptedEnvironment", *, task: Task, state: _State, number: int) -> None:
        self._environment = environment
        self._task = task
        self._state = state
        self._calls = dict.fromkeys(Call, 0)
        self.number = number  # order of opening, from 0
        self.closed = False

    @property
    def goal(self) -> str:
        """What the seed makes of the template."""
        match self._task.template.id:
            case COUNT.id:
                return f"count to {self._target}"
            case CHOOSE.id:
                return f"press {self._word}"
            case _:
                return f"enter {self._word}"

    async def observe(self) -> Observation:
        await self._strike(Call.OBSERVE)
        elements = tuple(_element(i, *seen) for i, seen in enumerate(self._page(), start=1))
        shown = json.dumps([asdict(e) for e in elements] + [self._state.done])
        return Observation(
            image=self._environment.screenshot(elements),
            elements=elements,
            accessibility="\n".join(f"[{e.id}] {e.role} '{e.label}'" for e in elements),
            url=f"scripted:{self._task.template.id}",
            digest=hashlib.sha256(shown.encode()).hexdigest(),
        )

    async def act(self, action: Action) -> Step:
        await self._strike(Call.ACT)
        if self._state.done:
            return Step(done=True, message="the episode is over")
        match action:
            case Click(target) | DoubleClick(target):
                return self._press(target)
            case Type(text, target):
                return self._type(text, target)
            case Answer() | Finish():
                self._state = replace(self._state, done=True)
                return Step(done=True)
            case _:
                return Step(done=False, message=_refusal(action))

    async def evidence(self) -> Evidence:
        await self._strike(Call.EVIDENCE)
        state = self._state
        return Evidence(done=state.done, raw_reward=state.raw_reward, state=json.dumps(asdict(state)))

    async def snapshot(self) -> SnapshotId | None:
        await self._strike(Call.SNAPSHOT)
        return self._environment.keep(self._state)

    async def expert_action(self) -> Action | None:
        """The shortest way, one action at a time."""
        if self._state.done:
            return None
        match self._task.template.id:
            case COUNT.id:
                return Click(ElementId(1 if self._state.number < self._target else 2))
            case CHOOSE.id:
                return Click(ElementId(1 + self._buttons.index(self._word)))
            case _:
                typed = self._state.text == self._word
                return Click(ElementId(2)) if typed else Type(self._word, ElementId(1))

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._environment.give_back()
        await self._strike(Call.CLOSE, closing=True)

    @property
    def _target(self) -> int:
        return 1 + self._task.seed % 3

    @property
    def _word(self) -> str:
        return WORDS[self._task.seed % len(WORDS)]

    @property
    def _buttons(self) -> tuple[str, ...]:
        turn = self._task.seed // len(WORDS) % len(WORDS)
        return WORDS[turn:] + WORDS[:turn]

    def _page(self) -> tuple[_Seen, ...]:
        match self._task.template.id:
            case COUNT.id:
                return (("button", "+", ""), ("button", "-", ""), ("text", str(self._state.number), ""))
            case CHOOSE.id:
                return tuple(("button", word, "") for word in self._buttons)
            case _:
                return (("input", "word", self._state.text), ("button", "submit", ""))

    def _press(self, target: Target) -> Step:
        pressed = self._under(target)
        page = self._page()
        if pressed > len(page):
            return Step(done=False, message=f"no element {pressed}")
        if pressed == 0 or page[pressed - 1][0] != "button":
            return Step(done=False)
        if self._task.template.id == COUNT.id:
            number = self._state.number + (1 if pressed == 1 else -1)
            won = number == self._target
            self._state = replace(self._state, number=number, done=won, raw_reward=1.0 if won else 0.0)
        else:
            chosen = self._state.text if self._task.template.id == ENTER.id else page[pressed - 1][1]
            self._state = replace(self._state, done=True, raw_reward=1.0 if chosen == self._word else -1.0)
        return Step(done=self._state.done)

    def _type(self, text: str, target: Target | None) -> Step:
        field = 1 if target is None else self._under(target)
        page = self._page()
        if field > len(page):
            return Step(done=False, message=f"no element {field}")
        if field == 0 or page[field - 1][0] != "input":
            return Step(done=False, message="no text can be typed there")
        self._state = replace(self._state, text=text)
        return Step(done=False)

    def _under(self, target: Target) -> int:
        """Number of the element at `target`; 0 where the screen is empty."""
        if not isinstance(target, Point):
            return max(target, 0)
        boxes = [_box(i) for i in range(1, len(self._page()) + 1)]
        hits = (i for i, box in enumerate(boxes, start=1) if _inside(target, box))
        return next(hits, 0)

    async def _strike(self, call: Call, *, closing: bool = False) -> None:
        if self.closed and not closing:
            raise SessionError(f"session {self.number} is closed")
        nth = self._calls[call]
        self._calls[call] += 1
        await strike(self._environment.faults, call, nth=nth, session=self.number)


class ScriptedEnvironment:
    """Opens scripted pages. Keeps every session that it opened, to be looked at afterwards."""

    def __init__(
        self,
        *,
        templates: Sequence[Template] = TEMPLATES,
        capacity: int = 8,
        blobs: BlobStore | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._templates = tuple(templates)
        self._capacity = capacity
        self._blobs = blobs
        self._free = asyncio.Semaphore(capacity)
        self._kept: dict[SnapshotId, _State] = {}
        self._opens = 0
        self.faults = tuple(faults)
        self.opened: list[ScriptedSession] = []
        self.peak = 0  # most sessions open at once

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def templates(self) -> Sequence[Template]:
        return self._templates

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def live(self) -> int:
        """Sessions that are open now."""
        return sum(not session.closed for session in self.opened)

    def has_expert(self, template: Template) -> bool:
        return template.id in {t.id for t in TEMPLATES}

    async def open(self, task: Task, *, start: Start) -> ScriptedSession:
        """Wait for a free place, then open. Opening a recorded state is a `ConfigError`: there is nothing to open."""
        number = self._opens
        self._opens += 1
        state = self._state_at(start)
        await self._free.acquire()
        try:
            await strike(self.faults, Call.OPEN, nth=number, session=number)
        except BaseException:
            self._free.release()
            raise
        session = ScriptedSession(self, task=task, state=state, number=number)
        self.opened.append(session)
        self.peak = max(self.peak, self.live)
        return session

    async def close(self) -> None:
        for session in self.opened:
            await session.close()

    def give_back(self) -> None:
        """A session's place is free again."""
        self._free.release()

    def keep(self, state: _State) -> SnapshotId:
        """Save a state under its content."""
        kept = SnapshotId(hashlib.sha256(json.dumps(asdict(state)).encode()).hexdigest())
        self._kept[kept] = state
        return kept

    def screenshot(self, elements: Sequence[Element]) -> ImageId | None:
        """Draw the page and store it; None without a blob store."""
        if self._blobs is None:
            return None
        image = Image.new("RGB", _SCREEN, "white")
        draw = ImageDraw.Draw(image)
        width, height = _SCREEN
        for element in elements:
            box = element.box
            corners = (
                box.left * width,
                box.top * height,
                (box.left + box.width) * width,
                (box.top + box.height) * height,
            )
            draw.rectangle(corners, outline="black", fill="lightgray" if element.interactive else None)
            draw.text((corners[0] + 2, corners[1] + 2), element.value or element.label, fill="black")
        packed = io.BytesIO()
        image.save(packed, "PNG")
        return self._blobs.put(packed.getvalue())

    def _state_at(self, start: Start) -> _State:
        match start:
            case FromSnapshot(id=wanted):
                if wanted not in self._kept:
                    raise SessionError(f"no snapshot {wanted}")
                return self._kept[wanted]
            case Recorded():
                raise ConfigError("a recorded state has no environment to open")
            case _:
                return _State()


def _refusal(action: Action) -> str:
    match action:
        case Wait():
            return ""
        case Invalid(reason=reason):
            return reason
        case _:
            return f"{type(action).__name__} does nothing here"


def _element(number: int, role: str, label: str, value: str) -> Element:
    return Element(
        id=ElementId(number),
        role=role,
        label=label,
        value=value,
        states=(),
        interactive=role != "text",
        box=_box(number),
    )


def _box(number: int) -> Box:
    return Box(left=0.1, top=0.26 + 0.18 * (number - 1), width=0.6, height=0.15)


def _inside(point: Point, box: Box) -> bool:
    return box.left <= point.x < box.left + box.width and box.top <= point.y < box.top + box.height
