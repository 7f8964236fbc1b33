"""The plain scheduler: every template in turn, each time on a task not yet seen."""

from collections.abc import Mapping, Sequence

import numpy as np

from cairn.data.task import RolloutPlan, Template
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.plans import RootPlans
from cairn.schedule.state import whole


class RoundRobin:
    """Cycles through the templates, in an order shuffled anew each time; ignores what the rollouts returned."""

    def __init__(self, *, templates: Sequence[Template], plans: RootPlans) -> None:
        if not templates:
            raise ConfigError("the scheduler needs at least one template")
        self._templates = tuple(templates)
        self._plans = plans
        self._count = 0

    def next_plan(self) -> RolloutPlan:
        number = self._count
        self._count += 1
        cycle, place = divmod(number, len(self._templates))
        order = np.random.default_rng((self._plans.seed, cycle)).permutation(len(self._templates))
        return self._plans.plan(number, self._templates[int(order[place])], visit=cycle)

    def observe(self, group: ScoredGroup) -> None:
        del group

    def state_dict(self) -> Mapping[str, object]:
        return {"count": self._count}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self._count = whole(state, "count")
