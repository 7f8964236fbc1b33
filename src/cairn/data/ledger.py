"""The ledger: what a run has spent and what it got for it, by purpose and template. Counted, never estimated."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import TypeAlias

from cairn.data.action import Invalid
from cairn.data.ids import TemplateId
from cairn.data.sample import NoGradient
from cairn.data.task import FromSnapshot, Purpose, Recorded
from cairn.data.trajectory import ScoredGroup, Trajectory

ALL_TEMPLATES = TemplateId("*")
"""Where what belongs to no single template is counted."""


class Quantity(StrEnum):
    """What is counted. Every quantity is a sum, so that ledgers can be added up."""

    GROUPS = auto()
    ENVIRONMENT_STEPS = auto()  # actions sent to a live session
    TRIED_STEPS = auto()  # those that a judge executed to find out where an answer leads
    OPENS = auto()  # sessions asked for, at a root or at a snapshot
    SAVES = auto()
    RESTORES = auto()  # those opens that start from a snapshot
    RESTORE_FAILURES = auto()  # openings that came to another state, or to none: each attempt counts
    RESTORE_FALLBACKS = auto()  # snapshots that only a store further down could open
    JUDGED = auto()  # trajectories that are evidence about the policy
    SUCCESS = auto()
    FAILURE = auto()
    TRUNCATED = auto()
    FORMAT_ERROR = auto()
    INFRASTRUCTURE_ERROR = auto()  # every attempt counts
    VERIFIER_ERROR = auto()
    STALE = auto()
    CANCELLED = auto()
    PROMPT_TOKENS = auto()  # of every turn, shared prefixes included
    RESPONSE_TOKENS = auto()
    UPDATES = auto()
    GROUPS_IN_UPDATES = auto()
    SEQUENCES_IN_UPDATES = auto()  # before equal ones are merged
    SAMPLES_IN_UPDATES = auto()  # after
    ALL_SOLVED = auto()  # groups that gave no gradient, and why
    ALL_FAILED = auto()
    EQUAL_REWARDS = auto()
    TOO_SMALL = auto()
    NO_BASELINE = auto()
    STEPS_WITHOUT_GRADIENT = auto()  # environment steps of those groups
    OPENING_SECONDS = auto()  # summed over episodes, which overlap
    ENVIRONMENT_SECONDS = auto()
    ENGINE_SECONDS = auto()
    CLOSING_SECONDS = auto()
    LEARNER_SECONDS = auto()


FROM_UPDATES = frozenset(
    {
        Quantity.SAVES,
        Quantity.TRIED_STEPS,
        Quantity.RESTORE_FAILURES,
        Quantity.RESTORE_FALLBACKS,
        Quantity.UPDATES,
        Quantity.GROUPS_IN_UPDATES,
        Quantity.SEQUENCES_IN_UPDATES,
        Quantity.SAMPLES_IN_UPDATES,
        Quantity.ALL_SOLVED,
        Quantity.ALL_FAILED,
        Quantity.EQUAL_REWARDS,
        Quantity.TOO_SMALL,
        Quantity.NO_BASELINE,
        Quantity.STEPS_WITHOUT_GRADIENT,
        Quantity.LEARNER_SECONDS,
    }
)
"""What the stored groups do not tell; all else can be counted again from them."""

LedgerKey: TypeAlias = tuple[Purpose, TemplateId, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Sums by purpose, template and quantity; what is not there is 0."""

    sums: Mapping[LedgerKey, int | float] = field(default_factory=dict[LedgerKey, int | float])

    def __add__(self, other: "Ledger") -> "Ledger":
        total = Counter[LedgerKey](self.sums)
        total.update(other.sums)
        return Ledger(sums=dict(total))

    def total(
        self, quantity: Quantity, *, purpose: Purpose | None = None, template: TemplateId | None = None
    ) -> int | float:
        """The sum over every purpose and template, or over the one given."""
        return sum(
            value
            for (of, at, what), value in self.sums.items()
            if what is quantity and purpose in (None, of) and template in (None, at)
        )


def environment_steps(group: ScoredGroup) -> int:
    """Actions that were sent to a live session, by the lost trajectories too."""
    return sum(_steps(result.trajectory) for result in (*group.members, *group.lost))


def of_groups(groups: Iterable[ScoredGroup]) -> Ledger:
    """What rollouts took and came to."""
    sums: defaultdict[LedgerKey, int | float] = defaultdict(int)
    for group in groups:
        for quantity, value in _line(group):
            if value:
                sums[group.plan.purpose, group.plan.task.template.id, quantity] += value
    return Ledger(sums=dict(sums))


def _line(group: ScoredGroup) -> Iterator[tuple[Quantity, int | float]]:
    yield Quantity.GROUPS, 1
    yield Quantity.JUDGED, len(group.members)
    for result in (*group.members, *group.lost):
        yield Quantity[result.outcome.name], 1
        yield from _spent(result.trajectory)


def of_update(
    *, used: Iterable[ScoredGroup], idle: Iterable[tuple[ScoredGroup, NoGradient]], sequences: int, samples: int
) -> Ledger:
    """What one update was made of: the groups in it, and those that gave no gradient with the reason."""
    sums = Counter[LedgerKey]()
    for group in used:
        sums[group.plan.purpose, group.plan.task.template.id, Quantity.GROUPS_IN_UPDATES] += 1
    for group, why in idle:
        purpose, template = group.plan.purpose, group.plan.task.template.id
        sums[purpose, template, Quantity[why.name]] += 1
        sums[purpose, template, Quantity.STEPS_WITHOUT_GRADIENT] += environment_steps(group)
    if samples:
        sums[Purpose.TRAIN, ALL_TEMPLATES, Quantity.UPDATES] += 1
        sums[Purpose.TRAIN, ALL_TEMPLATES, Quantity.SEQUENCES_IN_UPDATES] += sequences
        sums[Purpose.TRAIN, ALL_TEMPLATES, Quantity.SAMPLES_IN_UPDATES] += samples
    return Ledger(sums=dict(sums))


def of_snapshot(quantity: Quantity, template: TemplateId) -> Ledger:
    """One save, failed opening or fallback. Sessions do not say what they are for: it counts as training."""
    return Ledger(sums={(Purpose.TRAIN, template, quantity): 1})


def of_trial(template: TemplateId) -> Ledger:
    """One answer that a judge executed, in a session opened at a snapshot."""
    return Ledger(sums={(Purpose.TRAIN, template, Quantity.TRIED_STEPS): 1})


def of_learner(seconds: float) -> Ledger:
    """Time spent in the learner."""
    return Ledger(sums={(Purpose.TRAIN, ALL_TEMPLATES, Quantity.LEARNER_SECONDS): seconds})


def _steps(trajectory: Trajectory) -> int:
    if isinstance(trajectory.plan.start, Recorded):
        return 0
    return sum(not isinstance(turn.action, Invalid) for turn in trajectory.turns)


def _spent(trajectory: Trajectory) -> Iterator[tuple[Quantity, int | float]]:
    seconds, start = trajectory.seconds, trajectory.plan.start
    yield Quantity.ENVIRONMENT_STEPS, _steps(trajectory)
    yield Quantity.OPENS, int(not isinstance(start, Recorded))
    yield Quantity.RESTORES, int(isinstance(start, FromSnapshot))
    yield Quantity.PROMPT_TOKENS, sum(t.prompt.token_ids.shape[0] for t in trajectory.turns)
    yield Quantity.RESPONSE_TOKENS, sum(t.completion.token_ids.shape[0] for t in trajectory.turns)
    yield Quantity.OPENING_SECONDS, seconds.opening
    yield Quantity.ENVIRONMENT_SECONDS, seconds.environment
    yield Quantity.ENGINE_SECONDS, seconds.engine
    yield Quantity.CLOSING_SECONDS, seconds.closing
