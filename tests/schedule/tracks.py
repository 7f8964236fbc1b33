"""Made-up tasks with checkpoints, and groups whose actions and outcomes are given."""

from collections.abc import Sequence
from dataclasses import replace

from cairn.data.action import Action, Click, Point
from cairn.data.checkpoint import Checkpoint, Track
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.observation import Observation
from cairn.data.task import RolloutPlan, Split, Task, Template
from cairn.data.trajectory import ScoredGroup
from cairn.testing.groups import played_group

SEEN = Observation(image=None, elements=(), accessibility="", url="", digest="")
LONG = Template(id=TemplateId("t/long"), max_turns=12)
EXPERT: Action = Click(Point(0.5, 0.5))


def track_of(steps: int, *, index: int = 0, saved: bool = True) -> Track:
    """A task whose expert took so many steps, with a checkpoint before each."""
    task = Task(template=LONG, split=Split.TRAIN, index=index)
    return Track(task=task, checkpoints=tuple(_checkpoint(task, step, saved=saved) for step in range(steps)))


def _checkpoint(task: Task, step: int, *, saved: bool) -> Checkpoint:
    return Checkpoint(
        task=task,
        goal="go",
        history=(Deed(observation=SEEN, action=EXPERT),) * step,
        observation=SEEN,
        expert=EXPERT,
        snapshot=SnapshotId(f"s{task.index}x{step}") if saved else None,
    )


def came_to(plan: RolloutPlan, *, solved: int = 0, kinds: Sequence[int] = ()) -> ScoredGroup:
    """A group of which so many succeeded; `kinds` are the sizes of its clusters of equal first actions."""
    group = played_group(plan, [1.0] * solved + [0.0] * (plan.group_size - solved))
    if not kinds:
        return group
    assert sum(kinds) == plan.group_size
    places = [Point(0.1 * number, 0.1 * number) for number, size in enumerate(kinds) for _ in range(size)]
    members = [
        replace(m, trajectory=replace(m.trajectory, turns=(replace(m.trajectory.turns[0], action=Click(place)),)))
        for m, place in zip(group.members, places, strict=True)
    ]
    return replace(group, members=tuple(members))
