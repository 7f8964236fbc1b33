"""What is to be done, and how the scheduler wants it tried."""

from dataclasses import dataclass
from enum import StrEnum

from cairn.data.action import Action
from cairn.data.history import Deed
from cairn.data.ids import GroupId, SnapshotId, TaskId, TemplateId
from cairn.data.observation import Box, Observation
from cairn.errors import InvariantError

_SEEDS_PER_SPLIT = 1_000_000


class Split(StrEnum):
    """Which seeds a task may draw. The ranges do not meet, so no training seed is ever evaluated as held out."""

    TRAIN = "train"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One kind of task: a page with a goal that a seed makes concrete."""

    id: TemplateId
    max_turns: int

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise InvariantError(f"{self.id}: max_turns must be at least 1")

    def depth(self, limit: int | None) -> int:
        """Turns of a whole rollout: the template's own, or fewer where a run has a lower limit."""
        return self.max_turns if limit is None else min(limit, self.max_turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One instance of a template: the `index`-th of its split."""

    template: Template
    split: Split
    index: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < _SEEDS_PER_SPLIT:
            raise InvariantError(f"{self.template.id}: index must be in [0, {_SEEDS_PER_SPLIT}), got {self.index}")

    @property
    def seed(self) -> int:
        """The environment's seed: train [0, 10^6), held out [10^6, 2·10^6)."""
        return self.index + (_SEEDS_PER_SPLIT if self.split is Split.HELD_OUT else 0)

    @property
    def id(self) -> TaskId:
        """Template and seed, as in `miniwob/click-test#17`."""
        return TaskId(f"{self.template.id}#{self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Start where the task starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSnapshot:
    """Start in a saved state of a live session. What was done before belongs to the prompt: `Session.history`."""

    id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Answer at a recorded state, without an environment; `expert` is the action to match.

    `history` is what was done before, and becomes part of the prompt. Neither `target` nor `sub_goal` does.
    """

    goal: str
    history: tuple[Deed, ...] = ()
    observation: Observation
    expert: Action
    target: Box | None = None  # where the expert's action may aim; None: at its element, or at its point alone
    sub_goal: str = ""  # what this one step is for, where somebody wrote it down


Start = Root | FromSnapshot | Recorded


class Purpose(StrEnum):
    """What a rollout is for; the ledger counts by it."""

    TRAIN = "train"
    PROBE = "probe"
    REESTIMATE = "reestimate"
    BASELINE = "baseline"  # the greedy rollout beside a group, which its siblings are compared with
    EVALUATE = "evaluate"
    DEMONSTRATE = "demonstrate"

    @property
    def trained(self) -> bool:
        """Whether the policy learns from such rollouts, where they give a gradient."""
        return self in {Purpose.TRAIN, Purpose.PROBE}

    @property
    def greedy(self) -> bool:
        """Whether the policy's likeliest answers are taken, whatever the run's temperature."""
        return self is Purpose.BASELINE


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """The scheduler's order: from which state, how many siblings, how far, and what for."""

    group_id: GroupId
    task: Task
    start: Start
    group_size: int
    depth: int  # turns at most
    purpose: Purpose
    seed: int  # of the policy's sampling; every turn of every sibling derives its own from it

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.depth < 1:
            raise InvariantError(f"{self.group_id}: group_size and depth must be at least 1")
