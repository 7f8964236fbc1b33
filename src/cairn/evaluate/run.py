"""Evaluation: fresh episodes from each task's own root, on tasks that training never draws."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from cairn.data.ids import GroupId
from cairn.data.task import Purpose, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import ScoredGroup
from cairn.evaluate.report import EvaluationReport, summarise
from cairn.ports import Sampling

Play = Callable[[Sequence[RolloutPlan], Sampling], Awaitable[Sequence[ScoredGroup]]]
"""Rolls plans out; a group comes back for each plan, whatever it lost."""


class Examiner(Protocol):
    """Says how well the policy does."""

    async def run(
        self, templates: Sequence[Template], *, split: Split, per_template: int, tries: int, greedy: bool
    ) -> EvaluationReport:
        """Try so much of each template, always the same, `tries` times each (once where greedy)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Plays the first tasks of a split, always the same ones, so that two policies meet equal tasks."""

    play: Play
    sampling: Sampling
    seed: int
    max_turns: int | None  # None: the template's own
    first_train: int = 0  # training tasks below it are left out: they are known by heart
    budgets: Sequence[int] = ()  # turns within which success is told; an episode goes on up to the largest

    async def run(
        self, templates: Sequence[Template], *, split: Split, per_template: int, tries: int, greedy: bool
    ) -> EvaluationReport:
        """Play `per_template` tasks of each template, `tries` times each (once where greedy)."""
        tries = 1 if greedy else tries
        first = self.first_train if split is Split.TRAIN else 0
        tasks = [Task(template=t, split=split, index=first + i) for i in range(per_template) for t in templates]
        plans = [self._plan(task, place, tries=tries) for place, task in enumerate(tasks)]
        sampling = replace(self.sampling, temperature=0.0) if greedy else self.sampling
        groups = await self.play(plans, sampling)
        return summarise(groups, split=split, greedy=greedy, tries=tries, budgets=self.budgets)

    def _plan(self, task: Task, place: int, *, tries: int) -> RolloutPlan:
        return RolloutPlan(
            group_id=GroupId(f"evaluate/{task.id}"),
            task=task,
            start=Root(),
            group_size=tries,
            depth=max(self.budgets, default=task.template.depth(self.max_turns)),
            purpose=Purpose.EVALUATE,
            seed=seed_of(self.seed, place),
        )


def seed_of(seed: int, place: int) -> int:
    """Of the `place`-th plan of an evaluation."""
    return int(np.random.SeedSequence((seed, place)).generate_state(1)[0])
