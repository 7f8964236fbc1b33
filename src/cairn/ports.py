"""The seams. Components know these protocols and never each other; `cairn.app` picks implementations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from cairn.data.action import Action
from cairn.data.answer import AnswerShape, AnswerText
from cairn.data.history import Deed
from cairn.data.ids import ImageId, PolicyVersion, SnapshotId
from cairn.data.observation import Box, Observation
from cairn.data.sample import Appraisal, Batch, Preference, Sample
from cairn.data.task import RolloutPlan, Start, Task, Template
from cairn.data.trajectory import Completion, Evidence, Prompt, ScoredGroup, ScoredTrajectory, Term, Trajectory

# ── environments ──────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What an action came to."""

    done: bool  # the environment ended the episode
    message: str = ""  # what the agent must be told ("no element 7"); empty when the action was performed


class Session(Protocol):
    """One live GUI, used for one trajectory and then closed. Every failure outside is a `SessionError`."""

    @property
    def goal(self) -> str:
        """The instruction, made concrete by the task's seed."""
        ...

    async def observe(self) -> Observation: ...

    async def act(self, action: Action) -> Step:
        """Perform `action` and let the interface settle. An impossible action is a message, never an error."""
        ...

    async def evidence(self) -> Evidence:
        """What can be said of the state reached, for judging. May be called once the episode is over or cut."""
        ...

    async def snapshot(self) -> SnapshotId | None:
        """Save the state; None where this session cannot."""
        ...

    async def close(self) -> None:
        """Free everything. Idempotent, and safe after any failure."""
        ...


@runtime_checkable
class ExpertSession(Session, Protocol):
    """A session that also knows how its task is solved."""

    async def expert_action(self) -> Action | None:
        """The next action of a scripted expert in the present state; None where it knows none."""
        ...


@runtime_checkable
class ResumedSession(Session, Protocol):
    """A session that may have begun in the middle of its task."""

    @property
    def history(self) -> Sequence[Deed]:
        """What was done before this session began, from the task's root on."""
        ...


@runtime_checkable
class WatchedSession(Session, Protocol):
    """A session that counts what goes wrong in its page's scripts."""

    async def script_errors(self) -> int:
        """Errors that the page has raised or logged so far, those before a snapshot included."""
        ...


class SessionFactory(Protocol):
    """Opens sessions, at a task's root or at a snapshot. Warm browsers and containers are its own affair."""

    @property
    def capacity(self) -> int:
        """How many sessions may be open at once; `open` waits for a free place."""
        ...

    async def open(self, task: Task, *, start: Start) -> Session: ...

    async def close(self) -> None:
        """Close whatever is still open. Idempotent."""
        ...


class Environment(SessionFactory, Protocol):
    """A suite of task templates with the means to open them."""

    @property
    def name(self) -> str: ...

    @property
    def templates(self) -> Sequence[Template]: ...

    def has_expert(self, template: Template) -> bool:
        """Whether its sessions are `ExpertSession`s that can solve this template."""
        ...


@runtime_checkable
class CalibratedEnvironment(Environment, Protocol):
    """An environment that can prove its coordinates: it shows a target where it is told to."""

    async def open_target(self, target: Box) -> Session:
        """A page that is white but for a rectangle of magenta, (255, 0, 255), at `target`.

        The rectangle is the page's only interactive element. `evidence().raw_reward` is 1 where the last click hit it.
        """
        ...


class BlobStore(Protocol):
    """Screenshots and other bytes, stored once under their hash."""

    def put(self, data: bytes) -> ImageId:
        """Store `data` (a PNG, JPEG or WebP file) and return its sha256."""
        ...

    def get(self, image: ImageId) -> bytes:
        """The bytes; `KeyError` where the id is unknown."""
        ...


# ── the policy ────────────────────────────────────────────────────────────────


class Past(Protocol):
    """An earlier exchange, as a prompt tells of it: a `Turn`, or a `Deed` (no tokens) from before a snapshot."""

    @property
    def observation(self) -> Observation: ...

    @property
    def action(self) -> Action: ...


class Codec(Protocol):
    """Between GUI space and token space. Pure: the same inputs give the same ids."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ...

    @property
    def forbidden_ids(self) -> frozenset[int]:
        """Tokens that may never be sampled (image placeholders and other special tokens)."""
        ...

    @property
    def max_answer_tokens(self) -> int: ...

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        """What the policy is asked before the next turn, given the turns so far."""
        ...

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        """The action that an answer holds; `Invalid`, with a reason for the policy, where it holds none."""
        ...

    def primitive(self, action: Action, seen: Observation) -> Action:
        """The first of what `action` takes in this codec's own actions (click a field, before typing into it)."""
        ...

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        """Every answer that says the primitive `action`, stop token included, the plainest first; may be empty.

        A click anywhere inside an element's box is the same click, so imitation may draw any of them.
        """
        ...


@runtime_checkable
class ReadableCodec(Codec, Protocol):
    """A codec whose answers are text that a reward may look at."""

    @property
    def shapes(self) -> frozenset[AnswerShape]:
        """The forms that an answer may have here."""
        ...

    def read(self, token_ids: Int32[np.ndarray, " C"]) -> AnswerText:
        """What was said, in parts. Total: whatever was sampled is some text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How answers are drawn. Temperature 0 is greedy."""

    temperature: float = 1.0
    max_tokens: int = 64


class Engine(Protocol):
    """Samples from the current policy. Every failure is an `EngineError`."""

    async def generate(self, prompt: Prompt, *, sampling: Sampling, seed: int) -> Completion:
        """Sample one answer. `logprobs` are those of the distribution sampled from (at temperature 0: at 1)."""
        ...

    async def update(self, version: PolicyVersion) -> None:
        """Serve the learner's newest weights under that version. Answers under way finish first."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerStep:
    """What one optimiser step was like."""

    version: PolicyVersion
    loss: float
    grad_norm: float  # before clipping
    learning_rate: float
    entropy: float  # mean over sampled tokens, nats
    kl: float  # k3 of the new against the sampling policy, mean over sampled tokens, before the step
    clipped: float  # share of sampled tokens at the clip
    effective: float  # share of its sampled tokens as which a batch counts once they are corrected
    mismatch_mean: float  # |engine - learner| log-prob at the sampling version
    mismatch_max: float
    trained_tokens: int  # computed by the learner
    seconds: float
    ratio_mean: float = 1.0  # of the new to the sampling policy's probabilities, over sampled tokens
    ratio_deviation: float = 0.0
    value_loss: float = 0.0  # of a critic, before its steps
    explained: float = 0.0  # share of the returns' variance that the critic knew; below 0: worse than their mean


class Learner(Protocol):
    """Turns a batch into the next policy. Never sees an environment."""

    @property
    def version(self) -> PolicyVersion: ...

    def imitate(self, batch: Batch) -> LearnerStep:
        """One step of maximum likelihood; `weights` are the tokens' weights."""
        ...

    def appraise(self, samples: Sequence[Sample]) -> Sequence[Appraisal]:
        """What estimators need to know of each sample, where they need more than rewards."""
        ...

    def improve(self, batch: Batch) -> LearnerStep:
        """One policy-gradient step; checks the alignment guard first."""
        ...

    def prefer(self, pairs: Sequence[Preference]) -> LearnerStep:
        """One step towards the better sides of pairs, away from the other ones; checks the alignment guard first."""
        ...

    def save(self, path: Path) -> None:
        """Write everything that `load` needs to go on bit for bit, and the model as `from_pretrained` reads it."""
        ...

    def load(self, path: Path) -> None: ...


# ── judging, scheduling, storing ──────────────────────────────────────────────


class Reward(Protocol):
    """Judges a finished trajectory. A failure of the judge is a `VerifierError`."""

    async def score(self, trajectory: Trajectory) -> float:
        """1 is success; anything else is the reward of a failure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a composed reward makes of a trajectory; the reward is the sum of the terms."""

    solved: bool
    terms: tuple[Term, ...]


class Composition(Protocol):
    """A reward of several terms, beside the one that says what is solved."""

    async def verdict(self, trajectory: Trajectory, *, solved: bool) -> Verdict | None:
        """None where no term has anything to say of such a trajectory: then the other reward stands alone."""
        ...

    def together(self, members: Sequence[ScoredTrajectory]) -> tuple[ScoredTrajectory, ...]:
        """The same members, with the terms that need all siblings of a group; called once all of them are over."""
        ...


class Asked(StrEnum):
    """What a judge is asked about."""

    TASK = "task"  # whether the steps reach the goal
    SUB_GOAL = "sub_goal"  # whether a thought means to do what was to be done next


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a judge is shown: its prompt has a place for each of the texts."""

    about: Asked
    goal: str
    said: str  # what is judged
    wanted: str = ""  # what it is compared with, where there is such a thing


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What a judge thinks."""

    score: float  # in [0, 1]
    reason: str = ""


class Judge(Protocol):
    """Somebody who is asked for an opinion, such as a model. Every failure is a `VerifierError`, never a low score."""

    @property
    def name(self) -> str:
        """Tells judges that may answer differently from each other: model and prompt belong to it."""
        ...

    async def judge(self, question: Question) -> Opinion: ...


class Scheduler(Protocol):
    """Chooses where to learn and how far to roll out. Pure and deterministic: no browser, tensor or clock."""

    def next_plan(self) -> RolloutPlan: ...

    def observe(self, group: ScoredGroup) -> None: ...

    def state_dict(self) -> Mapping[str, object]:
        """JSON values only."""
        ...

    def load_state_dict(self, state: Mapping[str, object]) -> None: ...


class TrajectoryStore(Protocol):
    """The single, append-only record of what happened."""

    def append(self, group: ScoredGroup) -> None:
        """Durable on return: a kill -9 afterwards loses nothing of it."""
        ...

    def read(self) -> Iterable[ScoredGroup]: ...


class Clock(Protocol):
    """Time, so that a test can own it."""

    def now(self) -> float:
        """Seconds, monotonic."""
        ...

    async def sleep(self, seconds: float) -> None: ...


# ── events ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth a line in the run's event log: `kind`, and JSON values."""

    kind: str
    fields: Mapping[str, str | int | float | bool | None]


class EventSink(Protocol):
    """Where events go: the run's JSONL file, TensorBoard, a progress bar."""

    def emit(self, event: Event) -> None: ...
