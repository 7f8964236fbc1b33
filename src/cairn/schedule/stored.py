"""Groups that another run has played, over and over; nothing is played anew."""

from collections.abc import Mapping, Sequence

import numpy as np

from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.state import whole


class StoredRounds:
    """Every plan once in a round, in an order shuffled anew each time."""

    def __init__(self, *, plans: Sequence[RolloutPlan], seed: int) -> None:
        if not plans:
            raise ConfigError(
                "the stored run has no task, and no state, at which it did better one time than another: "
                "there is nothing to compare"
            )
        self._plans = plans
        self._seed = seed
        self._count = 0

    def next_plan(self) -> RolloutPlan:
        lap, place = divmod(self._count, len(self._plans))
        order = np.random.default_rng((self._seed, lap)).permutation(len(self._plans))
        self._count += 1
        return self._plans[int(order[place])]

    def observe(self, group: ScoredGroup) -> None:
        del group

    def state_dict(self) -> Mapping[str, object]:
        return {"count": self._count, "plans": len(self._plans)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Raises `ConfigError` where there are other plans than those that the run began with."""
        known = whole(state, "plans")
        if known != len(self._plans):
            raise ConfigError(
                f"the run learned from {known} stored groups and there are {len(self._plans)} now: "
                "resume it with the stored run as it was"
            )
        self._count = whole(state, "count")
