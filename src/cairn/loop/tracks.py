"""Tracks: the ways of experts through training tasks, with a state to start from before every action."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cairn.data.action import Action
from cairn.data.checkpoint import Checkpoint, Track
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId, TaskId
from cairn.data.snapshot import Snapshot
from cairn.data.task import Task
from cairn.data.trajectory import Outcome, ScoredGroup, Turn
from cairn.loop import events
from cairn.loop.demonstrations import failures
from cairn.loop.experts import ExpertPlayer

_Way = tuple[TaskId, tuple[Action, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackCollector:
    """Lets experts play the tasks that are to be learned, and saves every state on their way."""

    player: ExpertPlayer

    async def collect(self, tasks: Sequence[Task]) -> tuple[Track, ...]:
        """A track for each task; without checkpoints where its expert failed, which is reported by template."""
        groups = await self.player.play(tasks)
        kept = self.player.keeper.snapshots() if self.player.keeper else ()
        tracks = tracks_of(groups, kept)
        for template, count in failures(groups).items():
            self.player.events.emit(events.notice(f"the expert failed {count} tasks of {template}: they have no track"))
        found = [checkpoint for track in tracks for checkpoint in track.checkpoints]
        saved = sum(checkpoint.snapshot is not None for checkpoint in found)
        text = f"{len(tracks)} tasks with {len(found)} states on their experts' ways, {saved} of them saved"
        self.player.events.emit(events.notice(text))
        return tracks


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
