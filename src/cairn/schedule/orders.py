"""Plans of schedulers that work from checkpoints, written one after the other, and what each was for."""

from dataclasses import dataclass
from enum import StrEnum

from cairn.data.checkpoint import Checkpoint
from cairn.data.ids import GroupId
from cairn.data.task import FromSnapshot, Purpose, Recorded, RolloutPlan, Root, Task
from cairn.data.trajectory import RULES, Outcome, ScoredGroup
from cairn.schedule.plans import seed_of


class Aim(StrEnum):
    """What an order is for."""

    SURVEY = "survey"  # answers at a checkpoint, to measure it
    ESTIMATE = "estimate"  # root rollouts that say how well a task goes
    LOCAL = "local"  # one answer at a pivot
    SUFFIX = "suffix"  # from a pivot to the end
    ROOT = "root"  # the whole task


_PURPOSES = {
    Aim.SURVEY: Purpose.REESTIMATE,
    Aim.ESTIMATE: Purpose.REESTIMATE,
    Aim.LOCAL: Purpose.TRAIN,
    Aim.SUFFIX: Purpose.TRAIN,
    Aim.ROOT: Purpose.PROBE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One group: what for, and at which checkpoint of which track (-1: at the root)."""

    aim: Aim
    track: int
    checkpoint: int = -1
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Turns orders into plans."""

    name: str  # of the scheduler, in the groups' ids
    seed: int
    max_turns: int | None = None  # a limit below the templates' own

    def plan(self, number: int, order: Order, *, task: Task, checkpoint: Checkpoint | None) -> RolloutPlan:
        """The `number`-th plan of the run. A suffix from the root itself needs no snapshot."""
        depth = task.template.depth(self.max_turns)
        start: Root | FromSnapshot | Recorded = Root()
        if checkpoint is not None and order.aim in {Aim.SURVEY, Aim.LOCAL}:
            start, depth = checkpoint.answered(), 1
        elif checkpoint is not None and checkpoint.step:
            start, depth = checkpoint.resumed(), max(1, depth - checkpoint.step)
        return RolloutPlan(
            group_id=GroupId(f"{self.name}-{number:06d}"),
            task=task,
            start=start,
            group_size=order.size,
            depth=depth,
            purpose=_PURPOSES[order.aim],
            seed=seed_of(self.seed, number),
        )


def successes(group: ScoredGroup) -> list[bool]:
    """Of each member that says something about the policy."""
    return [m.outcome is Outcome.SUCCESS for m in group.members if RULES[m.outcome].in_success_rate]
