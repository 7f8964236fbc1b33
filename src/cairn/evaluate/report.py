"""What an evaluation came to: success by template and in all, with what was lost outside beside it, never inside."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cairn.algo.statistics import Interval, clustered_interval, pass_at_k
from cairn.data.action_json import kind_of
from cairn.data.ids import TaskId, TemplateId
from cairn.data.recorded import recovery_of
from cairn.data.task import Recorded, Split
from cairn.data.trajectory import RULES, Outcome, ScoredGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTries:
    """The tries of one task, or of one of its recorded states, that say something about the policy."""

    task: TaskId
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
class KindScore:
    """Recorded states at which the expert did one kind of action, or that follow a wrong one (`Recovery`)."""

    kind: str
    states: int
    accuracy: Interval  # share of the answers that are right
    reward: float  # mean over the answers


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetScore:
    """Success within so many turns; a longer episode counts as a failure."""

    turns: int
    success: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """All templates, at one temperature, on one split."""

    split: Split
    greedy: bool
    tries: int
    scores: tuple[TemplateScore, ...]
    reward: float  # mean over valid tries
    answer_tokens: float  # sampled for one answer, mean over the turns of valid tries
    kinds: tuple[KindScore, ...] = ()  # where recorded states were answered
    budgets: tuple[BudgetScore, ...] = ()  # where they were asked for, growing

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
        """Avg@k: the mean over tasks of each task's share of solved tries, with its 95 % interval.

        Recorded states count one by one, and the interval knows that those of one task are alike.
        """
        return _success(self._tasks())

    def pass_at(self, k: int) -> Interval:
        """Pass@k over the tasks with at least k valid tries, with its 95 % interval."""
        tasks = [t for t in self._tasks() if t.valid >= k]
        return _interval([pass_at_k(t.valid, t.solved, k) for t in tasks], [t.task for t in tasks])

    def _tasks(self) -> list[TaskTries]:
        return [t for s in self.scores for t in s.tasks]


def _success(tries: Sequence[TaskTries]) -> Interval:
    counted = [t for t in tries if t.valid]
    return _interval([t.solved / t.valid for t in counted], [t.task for t in counted])


def _interval(values: Sequence[float], tasks: Sequence[TaskId]) -> Interval:
    """Where nothing was measured, anything is possible."""
    if not values:
        return Interval(mean=0.0, low=0.0, high=1.0)
    numbers = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
    return clustered_interval(np.array(values, np.float64), np.array([numbers[task] for task in tasks], np.int64))


def summarise(
    groups: Sequence[ScoredGroup], *, split: Split, greedy: bool, tries: int, budgets: Sequence[int] = ()
) -> EvaluationReport:
    """Count groups (one for each task), in the order in which their templates first appear."""
    by_template: dict[TemplateId, list[ScoredGroup]] = defaultdict(list)
    for group in groups:
        by_template[group.plan.task.template.id].append(group)
    return EvaluationReport(
        split=split,
        greedy=greedy,
        tries=tries,
        scores=tuple(_score(template, members) for template, members in by_template.items()),
        reward=_mean_reward(groups),
        answer_tokens=_mean_tokens(groups),
        kinds=_kinds(groups),
        budgets=tuple(
            BudgetScore(turns=turns, success=_success([_tries(g, within=turns) for g in groups]))
            for turns in sorted(budgets)
        ),
    )


def _kinds(groups: Sequence[ScoredGroup]) -> tuple[KindScore, ...]:
    """Of the groups at recorded states, by the expert's action or by recovery, in the order of the alphabet."""
    by_kind: dict[str, list[ScoredGroup]] = defaultdict(list)
    for group in groups:
        if isinstance(group.plan.start, Recorded):
            recovery = recovery_of(group.plan.task.template.id)
            by_kind[recovery or kind_of(group.plan.start.expert)].append(group)
    return tuple(
        KindScore(kind=kind, states=len(own), accuracy=_success([_tries(g) for g in own]), reward=_mean_reward(own))
        for kind, own in sorted(by_kind.items())
    )


def _mean_reward(groups: Sequence[ScoredGroup]) -> float:
    rewards = [m.reward for g in groups for m in g.members if RULES[m.outcome].in_success_rate]
    return float(np.mean(rewards)) if rewards else 0.0


def _mean_tokens(groups: Sequence[ScoredGroup]) -> float:
    valid = [m.trajectory for g in groups for m in g.members if RULES[m.outcome].in_success_rate]
    lengths = [len(turn.completion.token_ids) for trajectory in valid for turn in trajectory.turns]
    return float(np.mean(lengths)) if lengths else 0.0


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


def _tries(group: ScoredGroup, *, within: int | None = None) -> TaskTries:
    counted = [m for m in group.members if RULES[m.outcome].in_success_rate]
    solved = [m for m in counted if m.outcome is Outcome.SUCCESS]
    soon = [m for m in solved if within is None or len(m.trajectory.turns) <= within]
    return TaskTries(task=group.plan.task.id, valid=len(counted), solved=len(soon))
