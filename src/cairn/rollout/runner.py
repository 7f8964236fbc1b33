"""Many groups at once: a round of plans becomes a round of scored groups."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.rollout.estimators import no_gradient
from cairn.rollout.group import GroupRunner, Record
from cairn.rollout.unwrap import one_error


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRunner:
    """Runs groups side by side, within the places that the group runner allows.

    Consumes plans. Produces scored groups, in the order of their plans whichever finished first, and hands each to
    `record` the moment it is complete; a stop hands over what was played of the others too, marked as cancelled.
    Waits for episodes alone, which end within their limits; a cancellation unblocks it once every session is closed.
    """

    groups: GroupRunner
    record: Record

    async def round(self, plans: Sequence[RolloutPlan]) -> tuple[ScoredGroup, ...]:
        """Every plan's group. Deterministic wherever the environment and the policy are."""
        with one_error():
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._one(plan)) for plan in plans]
        return tuple(task.result() for task in running)

    async def collect(
        self, next_plan: Callable[[], RolloutPlan], *, wanted: int, at_most: int
    ) -> tuple[ScoredGroup, ...]:
        """Play on until `wanted` groups give a gradient or `at_most` were played; returns them all.

        Groups that only measure give none. One that gives none is replaced as soon as it is in, so which plans are
        asked for may depend on timing.
        """
        if not 1 <= wanted <= at_most:
            raise ConfigError(f"at least one group must be wanted, and at most {at_most}; got {wanted}")
        started: list[asyncio.Task[ScoredGroup]] = []
        running: set[asyncio.Task[ScoredGroup]] = set()
        missing = wanted
        with one_error():
            async with asyncio.TaskGroup() as tasks:
                while True:
                    while len(running) < missing and len(started) < at_most:
                        started.append(tasks.create_task(self._one(next_plan())))
                        running.add(started[-1])
                    if not running:
                        break
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    missing -= sum(_learned_from(task.result()) for task in done)
        return tuple(task.result() for task in started)

    async def _one(self, plan: RolloutPlan) -> ScoredGroup:
        group = await self.groups.run(plan, abandoned=self.record)
        self.record(group)
        return group


def _learned_from(group: ScoredGroup) -> bool:
    return group.plan.purpose.trained and no_gradient(group) is None
