"""Collects what the experts show, once, and makes lessons of it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.data.ids import GroupId, TemplateId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory
from cairn.errors import ConfigError, SessionError
from cairn.loop import events
from cairn.loop.imitation import Curriculum, lessons_from
from cairn.ports import Codec, EventSink, TrajectoryStore
from cairn.rollout.demonstrate import run_demonstration
from cairn.rollout.runner import RolloutRunner
from cairn.rollout.unwrap import one_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """The first training tasks of every template, played by its expert. A failed one is reported, not hidden."""

    runner: RolloutRunner  # lends its environment, its judge and its places
    store: TrajectoryStore
    codec: Codec
    events: EventSink
    templates: Sequence[Template]  # those that an expert can show
    without: Sequence[Template]  # those that none can
    per_template: int
    batch_size: int
    answers: int
    seed: int

    async def curriculum(self) -> Curriculum:
        """Play what the store does not hold yet, and order all of it into lessons."""
        known = {g.plan.group_id: g for g in self.store.read() if g.plan.purpose is Purpose.DEMONSTRATE and g.members}
        plans = [self._plan(t, i) for i in range(self.per_template) for t in self.templates]
        missing = [p for p in plans if p.group_id not in known]
        with one_error():
            async with asyncio.TaskGroup() as tasks:
                played = [tasks.create_task(self._play(plan)) for plan in missing]
        found = known | {task.result().plan.group_id: task.result() for task in played}
        groups = [found[plan.group_id] for plan in plans]  # in one order, whichever came in first or was stored before
        if groups:
            self._report(groups)
        for template in self.without:
            self.events.emit(events.notice(f"{template.id} has no expert: it is practised without demonstrations"))
        return Curriculum(
            lessons_from(groups, self.codec), batch_size=self.batch_size, answers=self.answers, seed=self.seed
        )

    def _plan(self, template: Template, index: int) -> RolloutPlan:
        task = Task(template=template, split=Split.TRAIN, index=index)
        return RolloutPlan(
            group_id=GroupId(f"demonstrate/{task.id}"),
            task=task,
            start=Root(),
            group_size=1,
            depth=2 * template.max_turns,  # a codec may need two primitives for one action of the expert
            purpose=Purpose.DEMONSTRATE,
            seed=0,
        )

    async def _play(self, plan: RolloutPlan) -> ScoredGroup:
        """The expert's trajectory, played again on another session where the outside failed."""
        groups = self.runner.groups
        members: tuple[ScoredTrajectory, ...] = ()
        lost: list[LostTrajectory] = []
        for attempt in range(groups.retries + 1):
            async with groups.places:
                trajectory = await run_demonstration(
                    plan, sessions=groups.episodes.sessions, codec=self.codec, attempt=attempt
                )
            if trajectory.error is None:
                outcome, reward = await groups.judging.score(trajectory)
                members = (ScoredTrajectory(trajectory=trajectory, outcome=outcome, reward=reward),)
                groups.breaker.kept()
                break
            infrastructure = Outcome.INFRASTRUCTURE_ERROR
            lost.append(LostTrajectory(trajectory=trajectory, outcome=infrastructure, reason=trajectory.error))
            self.events.emit(events.lost(plan, attempt=attempt, error=trajectory.error))
            groups.breaker.lost(trajectory.error)
        group = ScoredGroup(plan=plan, members=members, lost=tuple(lost))
        self.runner.record(group)
        return group

    def _report(self, groups: Sequence[ScoredGroup]) -> None:
        failed: Counter[TemplateId] = Counter()
        shown = turns = 0
        for group in groups:
            solved = [m for m in group.members if m.outcome is Outcome.SUCCESS]
            failed[group.plan.task.template.id] += not solved
            shown += len(solved)
            turns += sum(len(m.trajectory.turns) for m in solved)
        if not shown:
            causes = [lost.reason for group in groups for lost in group.lost if not group.members]
            if causes:
                raise SessionError(f"no demonstration could be played to its end; the last attempt: {causes[-1]}")
            raise ConfigError("no expert solved anything: there are no demonstrations to imitate")
        self.events.emit(events.notice(f"{shown} demonstrations, {turns} turns"))
        for template, count in failed.items():
            if count:
                self.events.emit(events.notice(f"the expert failed {count} of {self.per_template} on {template}"))
