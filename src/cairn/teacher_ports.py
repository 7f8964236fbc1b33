"""The seams of thoughts, beside those in `cairn.ports`: who thinks aloud, and which codecs can say it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from cairn.data.action import Action
from cairn.data.observation import Observation
from cairn.data.task import Recorded
from cairn.ports import Codec


@runtime_checkable
class ExplainingCodec(Codec, Protocol):
    """A codec whose answers can begin with a thought."""

    def explained(
        self, goal: str, thought: str, action: Action, seen: Observation
    ) -> Sequence[Int32[np.ndarray, " C"]]:
        """`answers` with the thought in the place of none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a teacher would do at a state, and why."""

    thought: str  # may be empty
    action: Action


class Teacher(Protocol):
    """Somebody who thinks aloud, such as a large model. Every failure is an `EngineError`."""

    @property
    def name(self) -> str: ...

    async def explain(self, start: Recorded) -> Explanation:
        """Its own answer at the state; `Invalid` where it says none."""
        ...
