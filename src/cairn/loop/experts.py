"""Lets those who know play, once: what is stored already is not played again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.data.ids import GroupId, SnapshotId
from cairn.data.task import Purpose, RolloutPlan, Root, Task
from cairn.data.trajectory import LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory, Trajectory
from cairn.loop import events
from cairn.ports import Codec, EventSink, TrajectoryStore
from cairn.rollout.demonstrate import Guide, ask_expert, retrace, run_demonstration
from cairn.rollout.runner import RolloutRunner
from cairn.rollout.unwrap import one_error
from cairn.snapshot_ports import SnapshotKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPlayer:
    """Plays training tasks by their own experts, or as the policy once did; elsewhere where the outside failed."""

    runner: RolloutRunner  # lends its environment, its judge and its places
    store: TrajectoryStore
    codec: Codec
    events: EventSink
    guide: Guide = ask_expert  # who plays, where nothing is retraced
    keeper: SnapshotKeeper | None = None  # where the states before every action are saved, if they are

    async def play(self, tasks: Sequence[Task]) -> tuple[ScoredGroup, ...]:
        """A group of one for each task, in their order, whichever came in first or was stored before."""
        return await self._played([(plan_of(task), self.guide) for task in tasks])

    async def retrace(self, solved: Sequence[Trajectory]) -> tuple[ScoredGroup, ...]:
        """The same with the actions of trajectories from the root."""
        ways = [(one.plan.task, [turn.action for turn in one.turns]) for one in solved]
        return await self._played([(plan_of(task, by="retrace"), retrace(actions)) for task, actions in ways])

    async def _played(self, parts: Sequence[tuple[RolloutPlan, Guide]]) -> tuple[ScoredGroup, ...]:
        known = {g.plan.group_id: g for g in self.store.read() if g.plan.purpose is Purpose.DEMONSTRATE and g.members}
        with one_error():
            async with asyncio.TaskGroup() as group:
                playing = [
                    group.create_task(self._play(plan, guide)) for plan, guide in parts if plan.group_id not in known
                ]
        found = known | {task.result().plan.group_id: task.result() for task in playing}
        return tuple(found[plan.group_id] for plan, _ in parts)

    async def _play(self, plan: RolloutPlan, guide: Guide) -> ScoredGroup:
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
                    guide=guide,
                    attempt=attempt,
                    kept=kept if self.keeper else None,
                )
            if trajectory.error is None:
                members = (await groups.judging.score(trajectory),)
                groups.breaker.kept()
                if members[0].outcome is not Outcome.SUCCESS:
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


def plan_of(task: Task, *, by: str = "demonstrate") -> RolloutPlan:
    """A demonstration of a task."""
    return RolloutPlan(
        group_id=GroupId(f"{by}/{task.id}"),
        task=task,
        start=Root(),
        group_size=1,
        depth=2 * task.template.max_turns,  # a codec may need two primitives for one action of the expert
        purpose=Purpose.DEMONSTRATE,
        seed=0,
    )
