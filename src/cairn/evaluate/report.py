"""What an evaluation came to: success by template and in all, with what was lost outside beside it, never inside."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cairn.algo.statistics import Interval, mean_interval, pass_at_k
from cairn.data.ids import TemplateId
from cairn.data.task import Split
from cairn.data.trajectory import RULES, Outcome, ScoredGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTries:
    """The tries of one task that say something about the policy."""

    valid: int
    solved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateScore:
    """One template's tasks."""

    template: TemplateId
    tasks: tuple[TaskTries, ...]
    format_errors: int
    truncated: int
    lost: int  # failed outside, or could not be judged
    turns: int

    @property
    def episodes(self) -> int:
        """Valid tries of all its tasks."""
        return sum(t.valid for t in self.tasks)

    @property
    def success(self) -> float:
        """Share of valid tries that succeeded; 0 where none is valid."""
        return sum(t.solved for t in self.tasks) / self.episodes if self.episodes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """All templates, at one temperature, on one split."""

    split: Split
    greedy: bool
    tries: int
    scores: tuple[TemplateScore, ...]

    @property
    def episodes(self) -> int:
        """Valid tries."""
        return sum(s.episodes for s in self.scores)

    @property
    def lost(self) -> int:
        """Tries that say nothing about the policy."""
        return sum(s.lost for s in self.scores)

    @property
    def success(self) -> Interval:
        """Avg@k: the mean over tasks of each task's share of solved tries, with its 95 % interval."""
        return _interval([t.solved / t.valid for t in self._tasks() if t.valid])

    def pass_at(self, k: int) -> Interval:
        """Pass@k over the tasks with at least k valid tries, with its 95 % interval."""
        return _interval([pass_at_k(t.valid, t.solved, k) for t in self._tasks() if t.valid >= k])

    def _tasks(self) -> list[TaskTries]:
        return [t for s in self.scores for t in s.tasks]


def _interval(values: Sequence[float]) -> Interval:
    """Where nothing was measured, anything is possible."""
    if not values:
        return Interval(mean=0.0, low=0.0, high=1.0)
    return mean_interval(np.array(values, np.float64))


def summarise(groups: Sequence[ScoredGroup], *, split: Split, greedy: bool, tries: int) -> EvaluationReport:
    """Count groups (one for each task), in the order in which their templates first appear."""
    by_template: dict[TemplateId, list[ScoredGroup]] = defaultdict(list)
    for group in groups:
        by_template[group.plan.task.template.id].append(group)
    return EvaluationReport(
        split=split,
        greedy=greedy,
        tries=tries,
        scores=tuple(_score(template, members) for template, members in by_template.items()),
    )


def _score(template: TemplateId, groups: Sequence[ScoredGroup]) -> TemplateScore:
    members = [m for g in groups for m in g.members]
    return TemplateScore(
        template=template,
        tasks=tuple(_tries(g) for g in groups),
        format_errors=sum(m.outcome is Outcome.FORMAT_ERROR for m in members),
        truncated=sum(m.outcome is Outcome.TRUNCATED for m in members),
        lost=sum(len(g.lost) for g in groups),
        turns=sum(len(m.trajectory.turns) for m in members),
    )


def _tries(group: ScoredGroup) -> TaskTries:
    counted = [m for m in group.members if RULES[m.outcome].in_success_rate]
    return TaskTries(valid=len(counted), solved=sum(m.outcome is Outcome.SUCCESS for m in counted))
