"""Every dialect hits a drawn target in every coordinate space, and a frame that is off is found out."""

import pytest

from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.vision import VisionCodec
from cairn.data.coordinates import CoordinateSpace, Frame
from cairn.data.ids import ImageId
from cairn.testing.calibration_check import NamedCodec
from cairn.testing.environment_check import check_environment
from cairn.testing.environment_report import Check, Finding, Verdict
from cairn.testing.memory import MemoryBlobs
from cairn.testing.scripted import COUNT
from cairn.testing.spelled import SpellingProcessor
from cairn.testing.template_checks import CheckOptions
from testing.warped import CalibratedScripted, Shift

ONE = CheckOptions(templates=(COUNT,), patience_s=5, leak_patience_s=0.1)


class Unresized(SpellingProcessor):
    """Reads the numbers of the resized image as if it had been twice as wide."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self._asked = 0

    def frame(self, image: ImageId) -> Frame:
        right = super().frame(image)
        self._asked += 1
        return right if self._asked % 2 else Frame(space=right.space, width=2 * right.width, height=right.height)


async def found(codec: NamedCodec, blobs: MemoryBlobs) -> Finding:
    environment = CalibratedScripted(shift=Shift(), blobs=blobs)
    report = await check_environment(environment, options=ONE, blobs=blobs, codecs=(codec,))
    return next(r.finding for r in report.results if r.check is Check.COORDINATES)


@pytest.mark.parametrize("space", CoordinateSpace)
@pytest.mark.parametrize("dialect", Dialect)
async def test_a_drawn_target_is_hit(dialect: Dialect, space: CoordinateSpace) -> None:
    blobs = MemoryBlobs()
    codec = VisionCodec(processor=SpellingProcessor(blobs=blobs, space=space), dialect=dialect)
    finding = await found(NamedCodec(name=dialect, codec=codec), blobs)
    assert finding.verdict is Verdict.OK, finding.reason
    assert f"codec {dialect}" in finding.reason


async def test_a_frame_that_is_off_misses() -> None:
    blobs = MemoryBlobs()
    processor = Unresized(blobs=blobs, space=CoordinateSpace.PIXELS)
    codec = VisionCodec(processor=processor, dialect=Dialect.QWEN_COMPUTER)
    finding = await found(NamedCodec(name="off", codec=codec), blobs)
    assert finding.verdict is Verdict.FAIL
    assert "codec off answered a click" in finding.reason
