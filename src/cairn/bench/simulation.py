"""Schedulers against a policy that is a table: how they spend, at any scale, in seconds and without a browser.

A task is a row of steps, and the policy is right at each with a chance of its own. A rollout succeeds where every step
from its start to the end was right. Where the members of a group differ, what they did is practised: every step of it
becomes surer, the less so the more steps share the one reward. That is all; it says which scheduler spends less, not
how much a real policy learns.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool

from cairn.data.action import Action, Click, Finish, FinishStatus, Point
from cairn.data.checkpoint import Checkpoint, Track
from cairn.data.history import Deed
from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.observation import Observation
from cairn.data.task import FromSnapshot, Recorded, RolloutPlan, Split, Task, Template
from cairn.data.trajectory import Outcome, ScoredGroup, ScoredTrajectory
from cairn.ports import Scheduler
from cairn.testing.groups import played_group

_SEEN = Observation(image=None, elements=(), accessibility="", url="table:", digest="")
_RIGHT: Action = Finish(FinishStatus.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What the tasks and the policy are like."""

    tasks: int = 40
    steps: int = 12
    sure: float = 0.97  # the chance to be right where the policy knows what to do …
    unsure: float = 0.45  # … and where it hesitates
    hesitant: float = 0.3  # the share of steps where it does
    rate: float = 0.25  # of learning
    wrong_ways: int = 4  # actions that are not right, all as likely
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Spent:
    """So far."""

    plans: int = 0
    steps: int = 0  # actions executed, in training, probes and estimates alike
    samples: int = 0  # turns that entered an update
    curve: list[tuple[int, int, float]] = field(default_factory=list[tuple[int, int, float]])  # with the success then


class Table:
    """The policy: chances by task and step."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options
        self._rng = np.random.default_rng(options.seed)
        hesitant = self._rng.random((options.tasks, options.steps)) < options.hesitant
        self._right = np.where(hesitant, options.unsure, options.sure)
        template = Template(id=TemplateId("table/task"), max_turns=options.steps)
        self.tasks = tuple(Task(template=template, split=Split.TRAIN, index=i) for i in range(options.tasks))

    @property
    def success(self) -> float:
        """Mean chance of a whole rollout."""
        return float(np.prod(self._right, axis=1).mean())

    def tracks(self) -> tuple[Track, ...]:
        """An expert's way through each task, with a snapshot before every step."""
        deed = Deed(observation=_SEEN, action=_RIGHT)
        return tuple(
            Track(
                task=task,
                checkpoints=tuple(
                    Checkpoint(
                        task=task,
                        goal="",
                        history=(deed,) * step,
                        observation=_SEEN,
                        expert=_RIGHT,
                        snapshot=SnapshotId(f"{task.index}x{step}"),
                    )
                    for step in range(self._options.steps)
                ),
            )
            for task in self.tasks
        )

    def play(self, plan: RolloutPlan, spent: Spent) -> ScoredGroup:
        """Roll a plan out, and learn from it where it is for that."""
        task = plan.task.index
        first = _first_step(plan)
        answered = isinstance(plan.start, Recorded)
        last = first + 1 if answered else self._options.steps
        chances = self._right[task, first:last]
        right = self._rng.random((plan.group_size, last - first)) < chances
        solved: Bool[np.ndarray, " G"] = np.all(right, axis=1, keepdims=True)[:, 0]
        taken = np.where(solved, last - first, right.argmin(axis=1) + 1)
        if not answered:
            spent.steps += int(taken.sum())
        if plan.purpose.trained and 0 < solved.sum() < plan.group_size:
            spent.samples += int(taken.sum())
            self._learn(task, first, last, solved)
        return self._group(plan, solved, right[:, 0])

    def _learn(self, task: int, first: int, last: int, solved: Bool[np.ndarray, " G"]) -> None:
        """One reward is shared by all steps, and clearest where half of a group has it."""
        share = float(solved.mean())
        gain = self._options.rate * 4 * share * (1 - share) / np.sqrt(last - first)
        now = self._right[task, first:last]
        self._right[task, first:last] = np.minimum(0.995, now + gain * (1 - now))

    def _group(self, plan: RolloutPlan, solved: Bool[np.ndarray, " G"], right: Bool[np.ndarray, " G"]) -> ScoredGroup:
        """What schedulers look at: outcomes and first actions."""
        group = played_group(plan, [float(one) for one in solved])
        members = [self._acting(m, bool(own)) for m, own in zip(group.members, right, strict=True)]
        return replace(group, members=tuple(members))

    def _acting(self, member: ScoredTrajectory, right: bool) -> ScoredTrajectory:  # noqa: FBT001 - of one of many
        wrong = Click(Point(float(self._rng.integers(self._options.wrong_ways)) / self._options.wrong_ways, 0.5))
        turn = replace(member.trajectory.turns[0], action=_RIGHT if right else wrong, observation=_SEEN)
        outcome = Outcome.SUCCESS if member.reward == 1.0 else Outcome.FAILURE
        return replace(member, outcome=outcome, trajectory=replace(member.trajectory, turns=(turn,)))


def _first_step(plan: RolloutPlan) -> int:
    match plan.start:
        case FromSnapshot(id=snapshot):
            return int(snapshot.partition("x")[2])
        case Recorded(history=history):
            return len(history)
        case _:
            return 0


def simulate(scheduler: Scheduler, table: Table, *, until: float, at_most: int, every: int = 16) -> Spent:
    """Play plans until whole rollouts succeed that often, or `at_most` plans were played."""
    spent = Spent()
    while spent.plans < at_most and table.success < until:
        for _ in range(every):
            scheduler.observe(table.play(scheduler.next_plan(), spent))
            spent.plans += 1
        spent.curve.append((spent.steps, spent.samples, table.success))
    return spent


def steps_to(spent: Spent, success: float) -> int | None:
    """Environment steps until whole rollouts first succeeded that often; None where they never did."""
    return next((steps for steps, _, reached in spent.curve if reached >= success), None)


def samples_to(spent: Spent, success: float) -> int | None:
    """Samples until then."""
    return next((samples for _, samples, reached in spent.curve if reached >= success), None)
