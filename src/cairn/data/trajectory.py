"""What happened: turns in token space and in GUI space, how each trajectory ended, and how it was judged."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float32, Int32

from cairn.data.action import Action
from cairn.data.ids import ImageId, PolicyVersion
from cairn.data.observation import Observation
from cairn.data.task import RolloutPlan
from cairn.errors import InvariantError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the engine is given: exact ids, and the images that their placeholders stand for, in order."""

    token_ids: Int32[np.ndarray, " P"]
    images: tuple[ImageId, ...]

    def __post_init__(self) -> None:
        if self.token_ids.shape[0] == 0:
            raise InvariantError("a prompt holds at least one token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the engine sampled. `versions[i]` is the policy that sampled token i; the end token is included."""

    token_ids: Int32[np.ndarray, " C"]
    logprobs: Float32[np.ndarray, " C"]
    versions: Int32[np.ndarray, " C"]
    truncated: bool  # the token limit cut it before an end token

    def __post_init__(self) -> None:
        if not self.token_ids.shape == self.logprobs.shape == self.versions.shape:
            raise InvariantError("token_ids, logprobs and versions must have the same length")
        if self.token_ids.shape[0] == 0:
            raise InvariantError("a completion holds at least one token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange: what was shown, the exact prompt, the exact completion, the action read from it."""

    observation: Observation
    prompt: Prompt
    completion: Completion
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a session can say about its final state: all that a reward may look at besides the turns."""

    done: bool  # the environment itself ended the episode
    raw_reward: float  # the environment's own reward, before any shaping
    state: str  # its structured state as JSON, for checkers; may be empty


class Ending(StrEnum):
    """How a trajectory stopped, before anything judged it."""

    DONE = "done"  # the environment ended it, or the agent finished or answered
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_TOKENS = "out_of_tokens"
    FORMAT_ERROR = "format_error"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What a trajectory came to. `RULES` says what each part does about it."""

    SUCCESS = "success"
    FAILURE = "failure"
    TRUNCATED = "truncated"
    FORMAT_ERROR = "format_error"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    VERIFIER_ERROR = "verifier_error"
    STALE = "stale"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Where the wall time of one episode went."""

    opening: float = 0.0  # waiting for a free place included
    environment: float = 0.0  # observe, act, evidence
    engine: float = 0.0  # waiting for other prompts included
    closing: float = 0.0


_WITHOUT_EVIDENCE = frozenset({Ending.INFRASTRUCTURE_ERROR, Ending.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode, not yet judged. `evidence` is missing exactly where no judgement is possible."""

    plan: RolloutPlan
    sibling: int
    attempt: int  # 0 for the first; rises with every retry on another session
    goal: str
    turns: tuple[Turn, ...]
    ending: Ending
    evidence: Evidence | None
    error: str | None  # of an infrastructure error: what failed, and where
    seconds: Seconds = Seconds()

    def __post_init__(self) -> None:
        if (self.ending is Ending.INFRASTRUCTURE_ERROR) != (self.error is not None):
            raise InvariantError("exactly an infrastructure error carries an error text")
        if (self.ending in _WITHOUT_EVIDENCE) != (self.evidence is None):
            raise InvariantError(f"a trajectory that ended as {self.ending} and its evidence do not fit")

    @property
    def oldest_version(self) -> PolicyVersion:
        """The oldest policy that sampled any of its tokens; -1 where none was sampled."""
        return PolicyVersion(min((int(t.completion.versions.min()) for t in self.turns), default=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a composed reward: it adds `weight` x `value`."""

    name: str
    weight: float
    value: float  # 0 where a gate before it was shut

    @property
    def worth(self) -> float:
        """What it adds to the reward."""
        return self.weight * self.value


_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTrajectory:
    """A trajectory that was judged. `terms` is empty where the reward is not composed; else the reward is their sum."""

    trajectory: Trajectory
    outcome: Outcome
    reward: float  # in the loss and the baseline; the outcome alone decides success
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        if not np.isfinite(self.reward):
            raise InvariantError("a reward is finite")
        if self.terms and abs(self.reward - sum(term.worth for term in self.terms)) > _ROUNDING * (
            1 + sum(abs(term.worth) for term in self.terms)
        ):
            raise InvariantError(f"the reward {self.reward} is not the sum of its terms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTrajectory:
    """A trajectory that says nothing about the policy: recorded and counted, never trained on."""

    trajectory: Trajectory
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """Siblings of one plan: the unit of credit assignment. `lost` is kept for the record alone."""

    plan: RolloutPlan
    members: tuple[ScoredTrajectory, ...]
    lost: tuple[LostTrajectory, ...] = ()
    greedy: float | None = None  # reward of the greedy rollout beside it, which is stored as a group of its own

    def __post_init__(self) -> None:
        for member in self.members:
            if not RULES[member.outcome].in_baseline:
                raise InvariantError(f"{member.outcome} is no evidence about the policy: it belongs in `lost`")

    @property
    def rewards(self) -> Float32[np.ndarray, " G"]:
        """One per member."""
        return np.array([m.reward for m in self.members], np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRule:
    """What each part of the system does about an outcome."""

    in_loss: bool
    in_baseline: bool
    retried: bool  # the whole trajectory, on another session
    in_success_rate: bool


def _rule(*, trained: bool, retried: bool = False, counted: bool) -> OutcomeRule:
    return OutcomeRule(in_loss=trained, in_baseline=trained, retried=retried, in_success_rate=counted)


RULES = {
    Outcome.SUCCESS: _rule(trained=True, counted=True),
    Outcome.FAILURE: _rule(trained=True, counted=True),
    Outcome.TRUNCATED: _rule(trained=True, counted=True),
    Outcome.FORMAT_ERROR: _rule(trained=True, counted=True),
    Outcome.INFRASTRUCTURE_ERROR: _rule(trained=False, retried=True, counted=False),
    Outcome.VERIFIER_ERROR: _rule(trained=False, counted=False),
    Outcome.STALE: _rule(trained=False, counted=True),
    Outcome.CANCELLED: _rule(trained=False, counted=False),
}
