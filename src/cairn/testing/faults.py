"""What can go wrong in a scripted double, said in advance."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Call(StrEnum):
    """The calls that can be made to fail."""

    OPEN = "open"
    OBSERVE = "observe"
    ACT = "act"
    EVIDENCE = "evidence"
    SNAPSHOT = "snapshot"
    CLOSE = "close"
    GENERATE = "generate"
    UPDATE = "update"
    SCORE = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of call is slow, hangs or raises.

    For example, `Fault(call=Call.ACT, session=0, nth=1, error=ConnectionResetError("gone"))` breaks the second action
    of the first session, and `Fault(call=Call.OBSERVE, delay=math.inf)` makes every observation hang.
    """

    call: Call
    nth: int | None = (
        None  # which such call, from 0 (of each session; of an engine or a judge: in all); None: every one
    )
    session: int | None = None  # which session, from 0 in order of opening; None: every one
    delay: float = 0.0  # seconds before the answer; infinite: it never comes
    error: Exception | None = None


async def strike(faults: Sequence[Fault], call: Call, *, nth: int, session: int = 0) -> None:
    """Suffer those of `faults` that apply to this call."""
    for fault in faults:
        if fault.call is not call or fault.nth not in (None, nth) or fault.session not in (None, session):
            continue
        if math.isinf(fault.delay):
            await asyncio.Event().wait()
        if fault.delay > 0:
            await asyncio.sleep(fault.delay)
        if fault.error is not None:
            raise fault.error
