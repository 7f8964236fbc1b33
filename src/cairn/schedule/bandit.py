"""Where success is changing: starts are drawn by their learning progress, without any threshold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.data.checkpoint import Track
from cairn.data.ids import GroupId
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.orders import Aim, Order, Writer, successes
from cairn.schedule.state import number, table, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class BanditOptions:
    """How quickly success is followed, and how much is left to chance."""

    size: int = 8  # of a group
    fast: float = 0.4  # rates of the two running means whose difference is the progress
    slow: float = 0.1
    mixed: float = 0.5  # weight of p (1 - p), the chance that a group has a gradient at all, beside the progress
    floor: float = 0.02  # of every weight: what stands still may begin to move

    def __post_init__(self) -> None:
        if not 0 < self.slow < self.fast <= 1 or self.size < 2 or self.floor <= 0 or self.mixed < 0:
            raise ConfigError("a bandit needs 0 < slow < fast <= 1, groups of at least two, and a positive floor")


@dataclass(slots=True, kw_only=True)
class _Arm:
    """One start of one task; checkpoint -1 is the root."""

    track: int
    checkpoint: int
    fast: float = 0.5
    slow: float = 0.5


class LearningProgress:
    """Draws (task, start) in proportion to how fast its success has been changing (arXiv:1707.00183).

    Starts are the states on experts' ways, from which suffixes are rolled out, and the root.

    The first visits go round, from the deepest starts to the roots, so that every start is known before it is judged.
    """

    def __init__(self, *, tracks: Sequence[Track], writer: Writer, options: BanditOptions | None = None) -> None:
        if not tracks:
            raise ConfigError("the scheduler needs at least one task")
        self._tracks = tuple(tracks)
        self._writer = writer
        self._options = options or BanditOptions()
        self._arms = sorted(
            (arm for number, track in enumerate(tracks) for arm in _arms(number, track)),
            key=lambda arm: -arm.checkpoint,
        )
        self._count = 0
        self._orders: dict[GroupId, int] = {}

    def next_plan(self) -> RolloutPlan:
        place = self._count if self._count < len(self._arms) else self._drawn()
        arm = self._arms[place]
        track = self._tracks[arm.track]
        aim = Aim.SUFFIX if arm.checkpoint >= 0 else Aim.ROOT
        order = Order(aim=aim, track=arm.track, checkpoint=arm.checkpoint, size=self._options.size)
        checkpoint = track.checkpoints[arm.checkpoint] if arm.checkpoint >= 0 else None
        plan = self._writer.plan(self._count, order, task=track.task, checkpoint=checkpoint)
        self._count += 1
        self._orders[plan.group_id] = place
        return plan

    def observe(self, group: ScoredGroup) -> None:
        """Groups that were not ordered here are passed over."""
        place, tries = self._orders.pop(group.plan.group_id, None), successes(group)
        if place is None or not tries:
            return
        arm, rate = self._arms[place], sum(tries) / len(tries)
        arm.fast += self._options.fast * (rate - arm.fast)
        arm.slow += self._options.slow * (rate - arm.slow)

    def progress(self, track: int, checkpoint: int) -> float:
        """How fast the success from that start is changing; checkpoint -1 is the root."""
        arm = next(arm for arm in self._arms if (arm.track, arm.checkpoint) == (track, checkpoint))
        return abs(arm.fast - arm.slow)

    def state_dict(self) -> Mapping[str, object]:
        return {
            "count": self._count,
            "arms": {self._name(arm): {"fast": arm.fast, "slow": arm.slow} for arm in self._arms},
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Starts that the state does not know begin afresh."""
        self._count = whole(state, "count")
        saved = table(state, "arms")
        for arm in self._arms:
            if self._name(arm) in saved:
                row = table(saved, self._name(arm))
                arm.fast, arm.slow = number(row, "fast"), number(row, "slow")
        self._orders.clear()

    def _drawn(self) -> int:
        fast = np.array([arm.fast for arm in self._arms])
        slow = np.array([arm.slow for arm in self._arms])
        options = self._options
        weights = np.abs(fast - slow) + options.mixed * fast * (1 - fast) + options.floor
        rng = np.random.default_rng((self._writer.seed, self._count))
        return int(rng.choice(len(self._arms), p=weights / weights.sum()))

    def _name(self, arm: _Arm) -> str:
        return f"{self._tracks[arm.track].task.id}@{arm.checkpoint}"


def _arms(number: int, track: Track) -> list[_Arm]:
    """The root, and every state that a session can go on from."""
    usable = [
        i for i, checkpoint in enumerate(track.checkpoints) if checkpoint.step and checkpoint.snapshot is not None
    ]
    return [_Arm(track=number, checkpoint=checkpoint) for checkpoint in (-1, *usable)]
