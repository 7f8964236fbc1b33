"""How far a run has come: all that a resumed run needs besides the learner's checkpoint and the trajectory store."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cairn.data.task import Split
from cairn.errors import ConfigError, StoreError


class Phase(StrEnum):
    """The course of a run, in order."""

    DEMONSTRATE = "demonstrate"
    IMITATE = "imitate"
    REINFORCE = "reinforce"
    CONTROL = "control"  # more imitation from the end of IMITATE, for as long as REINFORCE took
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One evaluation of the run."""

    phase: Phase
    minutes: float  # of learning when it was made, in imitation and the later phase together
    split: str
    greedy: bool
    tries: int
    episodes: int
    lost: int
    mean: float
    low: float
    high: float
    by_template: Mapping[str, float]
    final: bool  # made at the end of its phase
    reward: float = 0.0  # mean over valid tries
    answer_tokens: float = 0.0  # sampled for one answer
    by_kind: Mapping[str, float] = field(default_factory=dict[str, float])  # of recorded states, by the expert's action
    by_budget: Mapping[int, float] = field(default_factory=dict[int, float])  # success within so many turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A point between two updates."""

    phase: Phase = Phase.DEMONSTRATE
    updates: int = 0  # of this phase
    seconds: float = 0.0  # of learning in this phase: rollouts and updates, not evaluation
    imitated: int = 0  # updates of imitation that the present policy, or the control, sets out from
    checkpoint: str | None = None  # the directory under checkpoints/ that holds the learner at this point
    scheduler: Mapping[str, object] = field(default_factory=dict[str, object])
    phase_seconds: Mapping[Phase, float] = field(
        default_factory=dict[Phase, float]
    )  # of learning in the phases that are over
    measured: tuple[Measured, ...] = ()

    def final(self, phase: Phase, *, greedy: bool, split: str = Split.HELD_OUT) -> Measured | None:
        """The evaluation at the end of a phase."""
        ends = (m for m in self.measured if m.final and m.phase is phase)
        return next((m for m in ends if m.greedy == greedy and m.split == split), None)


_ADAPTER = TypeAdapter(Progress)


def write(progress: Progress, path: Path) -> None:
    """Replace the file at once: a reader sees the old or the new, never a part."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(_ADAPTER.dump_json(progress, indent=1))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def read(path: Path) -> Progress:
    """What `write` wrote."""
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: nothing was trained in this run yet") from None
    except ValidationError as error:
        raise StoreError(f"{path} is damaged: {error.errors()[0]['msg']}") from error
