"""What a recipe says of the scheduler is what it gets."""

from cairn.app.schedulers import build_scheduler
from cairn.config.recipe import RunConfig
from cairn.config.tables import ReinforcementOptions, TrackOptions
from cairn.data.checkpoint import Track
from cairn.data.task import Split, Task
from cairn.schedule.tasks import TaskRounds
from cairn.testing.groups import played_group
from cairn.testing.scripted import COUNT

TASKS = [Task(template=COUNT, split=Split.TRAIN, index=index) for index in range(3)]


def rounds(tracks: TrackOptions) -> TaskRounds:
    config = RunConfig(reinforcement=ReinforcementOptions(scheduler="tasks", group_size=8), tracks=tracks)
    found = build_scheduler(config, [COUNT], [Track(task=task) for task in TASKS])
    assert isinstance(found, TaskRounds)
    return found


def test_groups_shrink_from_the_named_success_on() -> None:
    for above, size in ((None, 8), (0.5, 2)):
        scheduler = rounds(TrackOptions(per_template=3, shrink_above=above))
        for _ in range(30):
            plan = scheduler.next_plan()
            scheduler.observe(played_group(plan, [1.0] * plan.group_size))
        assert scheduler.next_plan().group_size == size


def test_hopeless_tasks_are_left_out_after_the_named_visits_alone() -> None:
    for after, left_out in ((None, False), (1, True)):
        scheduler = rounds(TrackOptions(per_template=3, cool_down_after=after))
        while (plan := scheduler.next_plan()).task != TASKS[0]:
            pass
        for _ in range(4):  # the first, and three of a cool-down
            scheduler.observe(played_group(plan, [0.0, 0.0]))
        assert scheduler.left_out(TASKS[0]) is left_out
        assert not scheduler.left_out(TASKS[1])
