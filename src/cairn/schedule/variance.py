"""A scheduler that goes where something can be learned: to templates that are solved sometimes, not always or never."""

from collections.abc import Mapping, Sequence

import numpy as np

from cairn.data.ids import TemplateId
from cairn.data.task import RolloutPlan, Template
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.orders import successes
from cairn.schedule.plans import RootPlans
from cairn.schedule.state import number, table, whole


class SuccessVariance:
    """Draws templates in proportion to `p (1 - p) + floor`, with p a running estimate of their success.

    A group of equal rewards has no gradient, and for independent tries with success p the expected variance of a
    group's rewards is proportional to p (1 - p). The floor keeps every template in play: what is solved may be
    forgotten, and what is out of reach may come into it. Plans depend on the seed and on the groups observed, in their
    order, alone.
    """

    def __init__(
        self, *, templates: Sequence[Template], plans: RootPlans, floor: float = 0.03, rate: float = 0.3
    ) -> None:
        if not templates:
            raise ConfigError("the scheduler needs at least one template")
        if floor <= 0 or not 0 < rate <= 1:
            raise ConfigError(f"floor must be positive and rate in (0, 1], got {floor} and {rate}")
        self._templates = tuple(templates)
        self._plans = plans
        self._floor = floor
        self._rate = rate
        self._count = 0
        self._visits = {template.id: 0 for template in templates}
        self._success = {template.id: 0.5 for template in templates}

    def next_plan(self) -> RolloutPlan:
        template = self._draw()
        plan = self._plans.plan(self._count, template, visit=self._visits[template.id])
        self._count += 1
        self._visits[template.id] += 1
        return plan

    def observe(self, group: ScoredGroup) -> None:
        template = group.plan.task.template.id
        counted = successes(group)
        if template in self._success and counted:
            now = self._success[template]
            self._success[template] = now + self._rate * (sum(counted) / len(counted) - now)

    def success(self, template: TemplateId) -> float:
        """The running estimate, in [0, 1]; 0.5 where nothing was observed."""
        return self._success[template]

    def state_dict(self) -> Mapping[str, object]:
        return {"count": self._count, "visits": dict(self._visits), "success": dict(self._success)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Templates that the state does not know start afresh; those that are gone are forgotten."""
        self._count = whole(state, "count")
        visits, success = table(state, "visits"), table(state, "success")
        self._visits = {t.id: whole(visits, t.id) if t.id in visits else 0 for t in self._templates}
        self._success = {t.id: number(success, t.id) if t.id in success else 0.5 for t in self._templates}

    def _draw(self) -> Template:
        success = np.array([self._success[t.id] for t in self._templates])
        weights = success * (1 - success) + self._floor
        rng = np.random.default_rng((self._plans.seed, self._count))
        return self._templates[int(rng.choice(len(self._templates), p=weights / weights.sum()))]
