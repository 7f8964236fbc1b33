"""The whole system on one page: plans -> rollouts -> record -> advantages -> batch -> one update -> engine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cairn.data import ledger as ledgers
from cairn.data.ledger import Ledger
from cairn.data.sample import Batch, Preference
from cairn.data.task import RolloutPlan
from cairn.data.trajectory import ScoredGroup
from cairn.loop import events
from cairn.ports import Clock, Engine, EventSink, Learner, LearnerStep, Scheduler
from cairn.rollout.greedy import with_greedy
from cairn.rollout.pairs import pairs_of
from cairn.rollout.runner import RolloutRunner
from cairn.rollout.samples import Credited, Crediting, credit

T = TypeVar("T")

Replay = Callable[[Sequence[ScoredGroup]], Sequence[ScoredGroup]]
"""Groups of one round, some of them perhaps with members of earlier ones."""


def as_they_are(groups: Sequence[ScoredGroup]) -> Sequence[ScoredGroup]:
    """No replay."""
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLoop:
    """Rolls out a round of groups under one policy, learns from it, and hands the new policy to the engine.

    Nothing overlaps: every token of a round was sampled by the policy that the update starts from.
    """

    scheduler: Scheduler
    runner: RolloutRunner
    crediting: Crediting
    learner: Learner
    engine: Engine
    clock: Clock
    events: EventSink
    count: Callable[[Ledger], None]
    groups_per_update: int
    groups_at_most: int | None = None  # played in a round for as many that give a gradient; None: no more than those
    replay: Replay = as_they_are
    stored: Callable[[RolloutPlan], ScoredGroup] | None = None  # gives what was played before; None: it is played now
    greedy: bool = False  # a greedy rollout is played beside every group (ReMax)
    pairs_per_group: int = 0  # to prefer one of, in the place of a policy gradient; 0: none

    async def step(self, number: int, *, rehearsal: Sequence[Batch] = ()) -> LearnerStep | None:
        """One round and one update; None where no group of the round gave a gradient.

        `rehearsal` is imitated right after the update: groups that are solved altogether give no gradient, so that
        nothing else holds the policy to what it knows.
        """
        started = self.clock.now()
        groups = await self._round()
        for group in groups:
            self.scheduler.observe(group)
        trained = self.replay([group for group in groups if group.plan.purpose.trained])
        credited = await self._credit(trained)
        seconds = self.clock.now() - started
        self.events.emit(events.round_done(number, groups, seconds=seconds, informative=len(credited.used)))
        idle = [(dropped.group, dropped.why) for dropped in credited.dropped]
        samples, sequences = len(credited.batch.samples) if credited.batch else 0, credited.sequences
        pairs = pairs_of(credited.used, limit=self.pairs_per_group)
        if self.pairs_per_group:
            samples = sequences = sum(len(pair.chosen) + len(pair.rejected) for pair in pairs)
        self.count(ledgers.of_update(used=credited.used, idle=idle, sequences=sequences, samples=samples))
        if credited.batch is None or not samples:
            return None
        step = await undisturbed(asyncio.to_thread(self._update, credited.batch, pairs, rehearsal))
        self.count(ledgers.of_learner(step.seconds))
        await self.engine.update(self.learner.version)
        return step

    async def _round(self) -> Sequence[ScoredGroup]:
        wanted, most = self.groups_per_update, self.groups_at_most
        if self.stored is not None:
            return [self.stored(self.scheduler.next_plan()) for _ in range(wanted)]
        if most is not None:
            return await self.runner.collect(self.scheduler.next_plan, wanted=wanted, at_most=most)
        plans = [self.scheduler.next_plan() for _ in range(wanted)]
        return await with_greedy(self.runner, plans) if self.greedy else await self.runner.round(plans)

    async def _credit(self, groups: Sequence[ScoredGroup]) -> Credited:
        """What the round is worth; a learner that must be asked for it is asked beside the loop."""
        if not self.crediting.appraised:
            return credit(groups, self.crediting)
        asked = asyncio.to_thread(credit, groups, self.crediting, appraise=self.learner.appraise)
        return await undisturbed(asked)

    def _update(self, batch: Batch, pairs: Sequence[Preference], rehearsal: Sequence[Batch]) -> LearnerStep:
        step = self.learner.prefer(pairs) if pairs else self.learner.improve(batch)
        for lessons in rehearsal:
            self.learner.imitate(lessons)
        return step


async def undisturbed(work: Awaitable[T]) -> T:
    """Await `work` to its end even where the task is cancelled meanwhile; the cancellation comes afterwards.

    Half an optimiser step must not be saved as a whole one.
    """
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
