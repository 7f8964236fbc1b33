"""Scripted environments with one defect each: what the conformance kit must notice."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

from cairn.data.action import Action, Click, Point
from cairn.data.ids import ElementId, ImageId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import Start, Task
from cairn.data.trajectory import Evidence
from cairn.ports import BlobStore, Step
from cairn.testing.scripted import ScriptedEnvironment, ScriptedSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Warp:
    """How a session differs from the scripted one; the functions get the session's number, from 0."""

    goal: Callable[[str, int], str] = lambda goal, _: goal
    observe: Callable[[Observation, int], Observation] = lambda seen, _: seen
    act: Callable[[Action, Step], Step] = lambda _, step: step
    evidence: Callable[[Evidence, int], Evidence] = lambda evidence, _: evidence
    expert: Callable[[Action | None], Action | None] = lambda action: action
    on_close: Callable[[int], None] = lambda _: None


class WarpedSession:
    def __init__(self, inner: ScriptedSession, warp: Warp) -> None:
        self._inner = inner
        self._warp = warp
        self._closes = 0

    @property
    def goal(self) -> str:
        return self._warp.goal(self._inner.goal, self._inner.number)

    async def observe(self) -> Observation:
        return self._warp.observe(await self._inner.observe(), self._inner.number)

    async def act(self, action: Action) -> Step:
        return self._warp.act(action, await self._inner.act(action))

    async def evidence(self) -> Evidence:
        return self._warp.evidence(await self._inner.evidence(), self._inner.number)

    async def snapshot(self) -> None:
        return None

    async def expert_action(self) -> Action | None:
        return self._warp.expert(await self._inner.expert_action())

    async def close(self) -> None:
        self._closes += 1
        await self._inner.close()
        self._warp.on_close(self._closes)


class WarpedEnvironment(ScriptedEnvironment):
    def __init__(self, warp: Warp, *, same_seed: bool = False, blobs: BlobStore | None = None) -> None:
        super().__init__(blobs=blobs)
        self._warp = warp
        self._same_seed = same_seed

    async def open(self, task: Task, *, start: Start) -> WarpedSession:  # pyright: ignore[reportIncompatibleMethodOverride]
        opened = replace(task, index=0) if self._same_seed else task
        return WarpedSession(await super().open(opened, start=start), self._warp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """By how much of the screen the target is drawn, listed and hit beside where it should be."""

    drawn: float = 0.0
    listed: float = 0.0
    hit: float = 0.0


class TargetSession:
    """A white page with a magenta rectangle that knows whether it was hit."""

    goal = "click the rectangle"

    def __init__(self, *, target: Box, shift: Shift, blobs: BlobStore) -> None:
        self._target = target
        self._shift = shift
        self._blobs = blobs
        self._hit = False

    async def observe(self) -> Observation:
        box = replace(self._target, left=self._target.left + self._shift.listed)
        element = Element(id=ElementId(1), role="area", label="", value="", states=(), interactive=True, box=box)
        return Observation(image=self._draw(), elements=(element,), accessibility="", url="", digest="target")

    async def act(self, action: Action) -> Step:
        box = self._target
        match action:
            case Click(Point(x, y)):
                x -= self._shift.hit
                self._hit = box.left <= x <= box.left + box.width and box.top <= y <= box.top + box.height
            case Click(element):
                self._hit = element == 1
            case _:
                self._hit = False
        return Step(done=False)

    async def evidence(self) -> Evidence:
        return Evidence(done=False, raw_reward=float(self._hit), state="")

    async def snapshot(self) -> None:
        return None

    async def close(self) -> None:
        pass

    def _draw(self) -> ImageId:
        image = Image.new("RGB", (160, 210), "white")
        box = self._target
        left, top = round((box.left + self._shift.drawn) * 160), round(box.top * 210)
        right, bottom = left + round(box.width * 160) - 1, top + round(box.height * 210) - 1
        ImageDraw.Draw(image).rectangle((left, top, right, bottom), fill=(255, 0, 255))
        packed = io.BytesIO()
        image.save(packed, "PNG")
        return self._blobs.put(packed.getvalue())


class CalibratedScripted(ScriptedEnvironment):
    def __init__(self, *, shift: Shift, blobs: BlobStore) -> None:
        super().__init__(blobs=blobs)
        self._shift = shift
        self._target_blobs = blobs

    async def open_target(self, target: Box) -> TargetSession:
        return TargetSession(target=target, shift=self._shift, blobs=self._target_blobs)
