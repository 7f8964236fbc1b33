"""Single answers at recorded states, and no environment at all."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int64

from cairn.data.ids import GroupId
from cairn.data.recorded import RecordedState
from cairn.data.task import Purpose, RolloutPlan, Split
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.plans import seed_of
from cairn.schedule.state import whole


class RecordedRounds:
    """Asks for answers at every recorded state once in a round, in an order shuffled anew each time.

    A state is read when its turn has come. What the answers were worth is ignored.
    """

    def __init__(self, *, states: Sequence[RecordedState], group_size: int, seed: int) -> None:
        """`states` are of training tasks; reading one is cheap, and gives the same every time."""
        if not states or group_size < 1:
            raise ConfigError("the scheduler needs at least one recorded state and a group size of at least 1")
        self._states = states
        self._group_size = group_size
        self._seed = seed
        self._count = 0
        self._round: int = -1  # that `_order` is of
        self._order: Int64[np.ndarray, " N"] = np.arange(0)

    def next_plan(self) -> RolloutPlan:
        number = self._count
        lap, place = divmod(number, len(self._states))
        if lap != self._round:
            self._order = np.random.default_rng((self._seed, lap)).permutation(len(self._states))
            self._round = lap
        state = self._states[int(self._order[place])]
        if state.task.split is not Split.TRAIN:
            raise ConfigError(f"{state.name} is held out: held-out states are for evaluation alone")
        self._count += 1
        return RolloutPlan(
            group_id=GroupId(f"recorded-{number:06d}"),
            task=state.task,
            start=state.start,
            group_size=self._group_size,
            depth=1,
            purpose=Purpose.TRAIN,
            seed=seed_of(self._seed, number),
        )

    def observe(self, group: ScoredGroup) -> None:
        del group

    def state_dict(self) -> Mapping[str, object]:
        return {"count": self._count, "states": len(self._states)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Raises `ConfigError` where it is of a set of another size: its orders were others."""
        known = whole(state, "states")
        if known != len(self._states):
            raise ConfigError(
                f"the run learned at {known} recorded states and there are {len(self._states)} now: "
                "resume it with the set that it began with"
            )
        self._count = whole(state, "count")
