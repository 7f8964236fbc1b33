"""How far a task has come: where its rollouts start, and how long they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cairn.errors import ConfigError
from cairn.schedule.state import array, as_number, text, whole


class Mode(StrEnum):
    """From the shortest rollouts to the longest."""

    LOCAL = "local"  # one answer at a pivot
    SUFFIX = "suffix"  # from the frontier to the end
    ROOT = "root"  # the whole task


RANK = {Mode.LOCAL: 0, Mode.SUFFIX: 1, Mode.ROOT: 2}


@dataclass(slots=True, kw_only=True)
class TaskProgress:
    """One task's; `mode` is None until its first estimate."""

    mode: Mode | None = None
    frontier: int = 0  # which of the task's ways in, counted from the root; suffixes start there
    visits: int = 0
    idle: int = 0  # estimates in a row between which no group of answers gave a gradient
    learned: bool = False  # one did, since the last estimate
    tries: list[bool] = field(default_factory=list[bool])  # of the estimate under way
    rates: list[float] = field(default_factory=list[float])  # of the suffixes from this frontier
    probes: list[bool] = field(default_factory=list[bool])  # newest last
    waiting: int = 0  # groups under way; not saved

    def state(self) -> dict[str, object]:
        """JSON values."""
        return {
            "mode": self.mode,
            "frontier": self.frontier,
            "visits": self.visits,
            "idle": self.idle,
            "learned": int(self.learned),
            "tries": [int(t) for t in self.tries],
            "rates": list(self.rates),
            "probes": [int(p) for p in self.probes],
        }


def load_progress(state: Mapping[str, object]) -> TaskProgress:
    """What `TaskProgress.state` gave."""
    mode = state.get("mode")
    return TaskProgress(
        mode=None if mode is None else _mode(text(state, "mode")),
        frontier=whole(state, "frontier"),
        visits=whole(state, "visits"),
        idle=whole(state, "idle"),
        learned=bool(whole(state, "learned")),
        tries=[bool(t) for t in array(state, "tries")],
        rates=[as_number(r, "rates") for r in array(state, "rates")],
        probes=[bool(p) for p in array(state, "probes")],
    )


def _mode(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError:
        raise ConfigError(f"scheduler state: there is no mode {name!r}") from None
