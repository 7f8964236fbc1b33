"""Coordinates, proved by a drawn target: where it is drawn, where it is said to be, and where clicks land."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from cairn.data.action import Action, Click, Point
from cairn.data.ids import ElementId
from cairn.data.observation import Box, Observation
from cairn.ports import BlobStore, CalibratedEnvironment, Codec, Session
from cairn.testing.environment_report import Finding, Verdict
from cairn.testing.playing import Call, Player

TARGETS = (
    Box(left=0.4, top=0.45, width=0.2, height=0.1),
    Box(left=0.05, top=0.1, width=0.1, height=0.06),
    Box(left=0.8, top=0.85, width=0.15, height=0.1),
    Box(left=0.1, top=0.8, width=0.08, height=0.08),
    Box(left=0.7, top=0.3, width=0.08, height=0.06),
)
_MAGENTA = (255, 0, 255)
_TOLERANCE = 0.0125  # of the screen: two pixels of 160
_MARGIN = 0.04  # how far outside a miss is aimed
_ANSWERS = 6  # of each target that are tried, from the plainest on: every cell of a large one would take minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCodec:
    """A codec, what to call it in a report, and the part of the screen that it can point at."""

    name: str
    codec: Codec
    reach: Box | None = None  # None: all of it

    def reaches(self, target: Box) -> bool:
        """Whether all of `target` lies in its reach."""
        reach = self.reach
        return reach is None or (
            reach.left <= target.left
            and reach.top <= target.top
            and target.left + target.width <= reach.left + reach.width
            and target.top + target.height <= reach.top + reach.height
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the check of coordinates works with."""

    environment: CalibratedEnvironment
    player: Player
    blobs: BlobStore | None
    codecs: Sequence[NamedCodec]


async def check_coordinates(calibration: Calibration) -> Finding:
    """Hit every target by point, by element and through every codec; miss it beside; find it in the screenshot."""
    drawn = True
    for target in TARGETS:
        seen = await _look(calibration, target)
        if (wrong := _misplaced(seen, target)) is not None:
            return Finding(verdict=Verdict.FAIL, reason=wrong)
        if seen.image is None or calibration.blobs is None:
            drawn = False
        elif (wrong := _misdrawn(_pixels(calibration.blobs.get(seen.image)), target)) is not None:
            return Finding(verdict=Verdict.FAIL, reason=wrong)
        if (wrong := await _clicks(calibration, target)) is not None:
            return Finding(verdict=Verdict.FAIL, reason=wrong)
    ways = ["points", "elements", *(f"codec {c.name}" for c in calibration.codecs), *(["screenshot"] if drawn else [])]
    return Finding(verdict=Verdict.OK, reason=f"{len(TARGETS)} targets by {', '.join(ways)}")


async def _open(calibration: Calibration, target: Box) -> Session:
    return await calibration.player.timed(Call.OPEN, "a target", calibration.environment.open_target(target))


async def _look(calibration: Calibration, target: Box) -> Observation:
    session = await _open(calibration, target)
    async with calibration.player.closing(session, "a target"):
        return await session.observe()


def _misplaced(seen: Observation, target: Box) -> str | None:
    found = [e for e in seen.elements if e.interactive]
    if len(found) != 1:
        return f"the page of {target} lists {len(found)} interactive elements instead of one"
    said, true = found[0].box, target
    off = max(
        abs(said.left - true.left),
        abs(said.top - true.top),
        abs(said.left + said.width - true.left - true.width),
        abs(said.top + said.height - true.top - true.height),
    )
    return None if off <= _TOLERANCE else f"{target} is observed at {said}"


def _pixels(data: bytes) -> UInt8[np.ndarray, "H W 3"]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"), np.uint8)


def _misdrawn(pixels: UInt8[np.ndarray, "H W 3"], target: Box) -> str | None:
    height, width = pixels.shape[:2]
    near = (np.abs(pixels.astype(np.int16) - np.array(_MAGENTA, np.int16)) <= 40).all(axis=2)
    rows, columns = np.nonzero(near)
    if rows.size == 0:
        return f"{target} is not in the screenshot"
    drawn = Box(
        left=float(columns.min()) / width,
        top=float(rows.min()) / height,
        width=float(columns.max() + 1 - columns.min()) / width,
        height=float(rows.max() + 1 - rows.min()) / height,
    )
    off = max(
        abs(drawn.left - target.left) * width,
        abs(drawn.top - target.top) * height,
        abs(drawn.left + drawn.width - target.left - target.width) * width,
        abs(drawn.top + drawn.height - target.top - target.height) * height,
    )
    return None if off <= 2.0 else f"{target} is drawn at {drawn} of {width}x{height} pixels"


async def _clicks(calibration: Calibration, target: Box) -> str | None:
    beside = target.left - _MARGIN if target.left >= _MARGIN else target.left + target.width + _MARGIN
    for what, action, expected in (
        ("its middle", Click(target.center), True),
        ("its element", Click(await _element(calibration, target)), True),
        ("beside it", Click(Point(beside, target.center.y)), False),
    ):
        if await _hits(calibration, target, action) is not expected:
            return f"a click on {what} {'missed' if expected else 'hit'} {target}"
    for named in calibration.codecs:
        if named.reaches(target) and (wrong := await _through(calibration, target, named)) is not None:
            return wrong
    return None


async def _element(calibration: Calibration, target: Box) -> ElementId:
    seen = await _look(calibration, target)
    return next(e.id for e in seen.elements if e.interactive)


async def _through(calibration: Calibration, target: Box, named: NamedCodec) -> str | None:
    session = await _open(calibration, target)
    async with calibration.player.closing(session, "a target"):
        seen = await session.observe()
        element = next(e.id for e in seen.elements if e.interactive)
        wanted = named.codec.primitive(Click(element), seen)
        answers = named.codec.answers(session.goal, wanted, seen)
    if not answers:
        return f"codec {named.name} has no answer for a click on {target}"
    for answer in answers[:: -(-len(answers) // _ANSWERS)]:
        action = named.codec.parse(session.goal, answer, seen)
        if not await _hits(calibration, target, action):
            return f"codec {named.name} answered a click on {target} with {action}, which missed"
    return None


async def _hits(calibration: Calibration, target: Box, action: Action) -> bool:
    session = await _open(calibration, target)
    async with calibration.player.closing(session, "a target"):
        await session.observe()
        await calibration.player.timed(Call.ACT, "a target", session.act(action))
        return (await session.evidence()).raw_reward == 1
