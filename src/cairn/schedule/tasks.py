"""Whole rollouts of a fixed set of tasks, over and over: vanilla GRPO, and what others made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.data.ids import GroupId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.orders import successes
from cairn.schedule.plans import seed_of
from cairn.schedule.state import array, number, table, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrinking:
    """Smaller groups for tasks that succeed often (DART-GUI): `least` at a success of 1, whole ones up to `above`."""

    above: float = 0.6
    least: int = 2
    rate: float = 0.5  # how fast the estimate of a task's success follows its groups

    def __post_init__(self) -> None:
        if not 0 <= self.above < 1 or self.least < 2 or not 0 < self.rate <= 1:
            raise ConfigError("shrinking needs above in [0, 1), least >= 2 and rate in (0, 1]")

    def size(self, whole_size: int, success: float) -> int:
        """Of a group of a task with that success."""
        if success <= self.above:
            return whole_size
        share = (success - self.above) / (1 - self.above)
        return max(min(self.least, whole_size), round(whole_size - share * (whole_size - self.least)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolDown:
    """Hopeless tasks come up less and less often and then no more (MobileRL's failure curriculum filtering)."""

    after: int = 2  # visits in a row without a success
    visits: int = 3  # at weights 1/2, 1/4, … of being drawn in a round; after the last one the task is left out

    def __post_init__(self) -> None:
        if self.after < 1 or self.visits < 0:
            raise ConfigError("a cool-down begins after at least 1 visit and lasts at least 0")


@dataclass(slots=True, kw_only=True)
class _Known:
    success: float = 0.5
    failed: int = 0  # visits in a row without a success


class TaskRounds:
    """Every task once in a round, in an order shuffled anew each time.

    Without options that is vanilla GRPO. When every task has been left out, all of them are taken in again.
    """

    def __init__(
        self,
        *,
        tasks: Sequence[Task],
        group_size: int,
        seed: int,
        max_turns: int | None = None,
        shrinking: Shrinking | None = None,
        cool_down: CoolDown | None = None,
    ) -> None:
        if not tasks or group_size < 1:
            raise ConfigError("the scheduler needs at least one task and a group size of at least 1")
        if any(task.split is not Split.TRAIN for task in tasks):
            raise ConfigError("held-out tasks are for evaluation alone")
        self._tasks = tuple(tasks)
        self._group_size = group_size
        self._seed = seed
        self._max_turns = max_turns
        self._shrinking = shrinking
        self._cool_down = cool_down
        self._known = {task.id: _Known() for task in tasks}
        self._count = 0
        self._round = 0
        self._place = 0  # in the round
        self._order: tuple[int, ...] = self._new_round()

    def next_plan(self) -> RolloutPlan:
        if self._place == len(self._order):
            self._round += 1
            self._place = 0
            self._order = self._new_round()
        task = self._tasks[self._order[self._place]]
        self._place += 1
        plan = RolloutPlan(
            group_id=GroupId(f"tasks-{self._count:06d}"),
            task=task,
            start=Root(),
            group_size=self._size(task),
            depth=task.template.depth(self._max_turns),
            purpose=Purpose.TRAIN,
            seed=seed_of(self._seed, self._count),
        )
        self._count += 1
        return plan

    def observe(self, group: ScoredGroup) -> None:
        known, tries = self._known.get(group.plan.task.id), successes(group)
        if known is None or not tries:
            return
        rate = self._shrinking.rate if self._shrinking else 1.0
        known.success += rate * (sum(tries) / len(tries) - known.success)
        known.failed = 0 if any(tries) else known.failed + 1

    def left_out(self, task: Task) -> bool:
        """Whether it has cooled down for good."""
        cooling = self._cool_down
        return cooling is not None and self._known[task.id].failed >= cooling.after + cooling.visits

    def state_dict(self) -> Mapping[str, object]:
        return {
            "count": self._count,
            "round": self._round,
            "place": self._place,
            "order": list(self._order),
            "tasks": {name: {"success": k.success, "failed": k.failed} for name, k in self._known.items()},
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Tasks that the state does not know start afresh."""
        self._count, self._round, self._place = (whole(state, key) for key in ("count", "round", "place"))
        tasks = table(state, "tasks")
        for name, known in self._known.items():
            if name in tasks:
                saved = table(tasks, name)
                known.success, known.failed = number(saved, "success"), whole(saved, "failed")
        order = array(state, "order")
        places: list[int] = [p for p in order if isinstance(p, int) and 0 <= p < len(self._tasks)]
        if places == order and self._place <= len(places):
            self._order = tuple(places)
        else:  # of other tasks
            self._order, self._place = self._new_round(), 0

    def _new_round(self) -> tuple[int, ...]:
        rng = np.random.default_rng((self._seed, self._round))
        shuffled = [int(place) for place in rng.permutation(len(self._tasks))]
        if self._cool_down is None:
            return tuple(shuffled)
        drawn = [place for place in shuffled if rng.random() < self._weight(self._tasks[place])]
        if not drawn and all(self.left_out(task) for task in self._tasks):
            for known in self._known.values():
                known.failed = 0
        return tuple(drawn or shuffled)

    def _weight(self, task: Task) -> float:
        """The chance of a task to come up in a round."""
        cooling, failed = self._cool_down, self._known[task.id].failed
        if cooling is None or failed < cooling.after:
            return 1.0
        return 0.0 if self.left_out(task) else 0.5 ** (failed - cooling.after + 1)

    def _size(self, task: Task) -> int:
        if self._shrinking is None:
            return self._group_size
        return self._shrinking.size(self._group_size, self._known[task.id].success)
