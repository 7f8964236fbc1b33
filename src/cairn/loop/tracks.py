"""Tracks: ways through training tasks that succeeded, with a state to start from before every action."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cairn.data.action import Action
from cairn.data.checkpoint import Checkpoint, Track
from cairn.data.history import Deed
from cairn.data.ids import GroupId, SnapshotId, TaskId, TemplateId
from cairn.data.snapshot import Snapshot
from cairn.data.task import Purpose, RolloutPlan, Root, Task
from cairn.data.trajectory import Outcome, ScoredGroup, Trajectory, Turn
from cairn.errors import ConfigError
from cairn.loop import events
from cairn.loop.demonstrations import failures
from cairn.loop.experts import ExpertPlayer

_Way = tuple[TaskId, tuple[Action, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """Whole rollouts of tasks by the policy, to see what it can do; those that the run holds are not played again."""

    player: ExpertPlayer
    size: int  # of each task
    max_turns: int | None = None  # below the template's own
    seed: int = 0

    async def successes(self, tasks: Sequence[Task]) -> tuple[tuple[Trajectory, ...], ...]:
        """Of each task, in their order."""
        plans = [self._plan(task) for task in tasks]
        stored = {g.plan.group_id: g for g in self.player.store.read() if g.plan.purpose is Purpose.REESTIMATE}
        fresh = await self.player.runner.round([plan for plan in plans if plan.group_id not in stored])
        found = stored | {group.plan.group_id: group for group in fresh}
        return tuple(
            tuple(m.trajectory for m in found[plan.group_id].members if m.outcome is Outcome.SUCCESS) for plan in plans
        )

    async def valuable(self, tasks: Sequence[Task]) -> list[Task]:
        """Those with at least one success (ARPO, arXiv:2505.16282). Raises `ConfigError` where there are none."""
        kept = [task for task, found in zip(tasks, await self.successes(tasks), strict=True) if found]
        text = f"{len(kept)} of {len(tasks)} tasks were solved at least once in {self.size} tries, and are learned"
        if not kept:
            raise ConfigError(f"{text}: let the policy imitate more first, or set tracks.valuable_tries higher")
        self.player.events.emit(events.notice(text))
        return kept

    def _plan(self, task: Task) -> RolloutPlan:
        return RolloutPlan(
            group_id=GroupId(f"own/{self.size}/{task.id}"),
            task=task,
            start=Root(),
            group_size=self.size,
            depth=task.template.depth(self.max_turns),
            purpose=Purpose.REESTIMATE,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackCollector:
    """Plays the tasks that are to be learned as their experts do, and saves every state on the way.

    Where there is no expert, or it fails, the policy may try: its shortest success is gone through again, and becomes
    the task's track.
    """

    player: ExpertPlayer
    own: Tries | None = None

    async def collect(self, tasks: Sequence[Task], *, known: Container[TemplateId]) -> tuple[Track, ...]:
        """A track for each task, in their order; without checkpoints where nobody succeeded, which is reported.

        `known` are the templates that have an expert.
        """
        played = await self.player.play([task for task in tasks if task.template.id in known])
        found = self._tracks(played)
        lacking = [task for task in tasks if task not in found]
        found |= self._tracks(await self.player.retrace(await self._solved(lacking)))
        self._tell(played, found)
        return tuple(found.get(task, Track(task=task)) for task in tasks)

    def _tracks(self, groups: Sequence[ScoredGroup]) -> dict[Task, Track]:
        """Those with checkpoints."""
        kept = self.player.keeper.snapshots() if self.player.keeper else ()
        return {track.task: track for track in tracks_of(groups, kept) if track.checkpoints}

    async def _solved(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """The policy's shortest success at each task that it solves."""
        ways = await self.own.successes(tasks) if self.own else ()
        return [min(solved, key=lambda one: len(one.turns)) for solved in ways if solved]

    def _tell(self, played: Sequence[ScoredGroup], tracks: Mapping[Task, Track]) -> None:
        for template, count in failures(played).items():
            self.player.events.emit(events.notice(f"the expert failed {count} tasks of {template}"))
        found = [checkpoint for track in tracks.values() for checkpoint in track.checkpoints]
        saved = sum(checkpoint.snapshot is not None for checkpoint in found)
        text = f"{len(tracks)} tasks have a track, with {len(found)} states, {saved} of them saved"
        self.player.events.emit(events.notice(text))


def tracks_of(groups: Sequence[ScoredGroup], snapshots: Iterable[Snapshot]) -> tuple[Track, ...]:
    """The checkpoints of demonstrations, each with the snapshot that was saved where it was, if there is one."""
    saved: dict[_Way, SnapshotId] = {}
    for snapshot in snapshots:
        saved[snapshot.task.id, tuple(deed.action for deed in snapshot.history)] = snapshot.id
    return tuple(_track(group, saved) for group in groups)


def _track(group: ScoredGroup, saved: dict[_Way, SnapshotId]) -> Track:
    task = group.plan.task
    for member in group.members:
        if member.outcome is Outcome.SUCCESS:
            turns, goal = member.trajectory.turns, member.trajectory.goal
            return Track(
                task=task,
                checkpoints=tuple(_checkpoint(task, goal, turns, step, saved) for step in range(len(turns))),
            )
    return Track(task=task)


def _checkpoint(task: Task, goal: str, turns: Sequence[Turn], step: int, saved: dict[_Way, SnapshotId]) -> Checkpoint:
    history = tuple(Deed(observation=turn.observation, action=turn.action) for turn in turns[:step])
    return Checkpoint(
        task=task,
        goal=goal,
        history=history,
        observation=turns[step].observation,
        expert=turns[step].action,
        snapshot=saved.get((task.id, tuple(deed.action for deed in history))),
    )
