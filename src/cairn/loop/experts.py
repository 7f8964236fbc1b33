"""Lets the environment's experts play, once: what is stored already is not played again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.data.ids import GroupId, SnapshotId
from cairn.data.task import Purpose, RolloutPlan, Root, Task
from cairn.data.trajectory import LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory
from cairn.loop import events
from cairn.ports import Codec, EventSink, TrajectoryStore
from cairn.rollout.demonstrate import run_demonstration
from cairn.rollout.runner import RolloutRunner
from cairn.rollout.unwrap import one_error
from cairn.snapshot_ports import SnapshotKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPlayer:
    """Plays training tasks, each by its own expert, again on another session where the outside failed."""

    runner: RolloutRunner  # lends its environment, its judge and its places
    store: TrajectoryStore
    codec: Codec
    events: EventSink
    keeper: SnapshotKeeper | None = None  # where the states before every action are saved, if they are

    async def play(self, tasks: Sequence[Task]) -> tuple[ScoredGroup, ...]:
        """A group of one for each task, in their order, whichever came in first or was stored before."""
        known = {g.plan.group_id: g for g in self.store.read() if g.plan.purpose is Purpose.DEMONSTRATE and g.members}
        plans = [plan_of(task) for task in tasks]
        with one_error():
            async with asyncio.TaskGroup() as group:
                playing = [group.create_task(self._play(plan)) for plan in plans if plan.group_id not in known]
        found = known | {task.result().plan.group_id: task.result() for task in playing}
        return tuple(found[plan.group_id] for plan in plans)

    async def _play(self, plan: RolloutPlan) -> ScoredGroup:
        groups = self.runner.groups
        members: tuple[ScoredTrajectory, ...] = ()
        lost: list[LostTrajectory] = []
        for attempt in range(groups.retries + 1):
            kept: list[SnapshotId] = []
            async with groups.places:
                trajectory = await run_demonstration(
                    plan,
                    sessions=groups.episodes.sessions,
                    codec=self.codec,
                    attempt=attempt,
                    kept=kept if self.keeper else None,
                )
            if trajectory.error is None:
                outcome, reward = await groups.judging.score(trajectory)
                members = (ScoredTrajectory(trajectory=trajectory, outcome=outcome, reward=reward),)
                groups.breaker.kept()
                if outcome is not Outcome.SUCCESS:
                    await self._forget(kept)
                break
            await self._forget(kept)
            infrastructure = Outcome.INFRASTRUCTURE_ERROR
            lost.append(LostTrajectory(trajectory=trajectory, outcome=infrastructure, reason=trajectory.error))
            self.events.emit(events.lost(plan, attempt=attempt, error=trajectory.error))
            groups.breaker.lost(trajectory.error)
        group = ScoredGroup(plan=plan, members=members, lost=tuple(lost))
        self.runner.record(group)
        return group

    async def _forget(self, kept: Sequence[SnapshotId]) -> None:
        """Nothing is to be learned from the states of an expert that failed."""
        if self.keeper is not None:
            for snapshot in kept:
                await self.keeper.release(snapshot)


def plan_of(task: Task) -> RolloutPlan:
    """A demonstration of a task."""
    return RolloutPlan(
        group_id=GroupId(f"demonstrate/{task.id}"),
        task=task,
        start=Root(),
        group_size=1,
        depth=2 * task.template.max_turns,  # a codec may need two primitives for one action of the expert
        purpose=Purpose.DEMONSTRATE,
        seed=0,
    )
