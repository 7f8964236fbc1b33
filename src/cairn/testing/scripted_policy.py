"""A policy that does as it is told: a codec with one token per action, an engine, a judge and a learner."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from cairn.data.action import Action, Click, Finish, Invalid, Type
from cairn.data.ids import ElementId, PolicyVersion
from cairn.data.observation import Observation
from cairn.data.sample import Appraisal, Batch, Preference, Sample
from cairn.data.trajectory import Completion, Prompt, Trajectory, Turn
from cairn.ports import LearnerStep, Past, Sampling
from cairn.testing.faults import Call, Fault, strike
from cairn.testing.scripted import WORDS

END = 0  # ends an answer
FINISH = 10
TYPE = 11  # TYPE + i types the i-th of WORDS into element 1
NONSENSE = 20  # an answer that holds no action
IMAGE = 31  # placeholder of one screenshot
_TEXT = 32  # _TEXT + b is byte b of the prompt's text
VOCABULARY = _TEXT + 256

Answers = Callable[[Prompt, int], Sequence[int]]
"""From a prompt and a seed to the tokens of an answer."""


class ScriptedCodec:
    """One token per action and `END`: tokens 1 to 9 click that element, `FINISH` stops, `TYPE + i` types a word.

    With `extend`, each prompt starts with the previous prompt and answer; without, it is built afresh every turn.
    With `images`, each turn shows its screenshot.
    """

    def __init__(self, *, extend: bool = False, images: bool = False, max_answer_tokens: int = 4) -> None:
        self._extend = extend
        self._images = images
        self._max_answer_tokens = max_answer_tokens

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset({END})

    @property
    def forbidden_ids(self) -> frozenset[int]:
        return frozenset({IMAGE})

    @property
    def max_answer_tokens(self) -> int:
        return self._max_answer_tokens

    def prompt(self, goal: str, turns: Sequence[Past], seen: Observation) -> Prompt:
        page = " ".join(f"{e.label}={e.value}" for e in seen.elements)
        shown = _encode(f"{page} {seen.message}")
        images = (seen.image,) if self._images and seen.image is not None else ()
        if images:
            shown = np.concatenate([np.array([IMAGE], np.int32), shown])
        last = turns[-1] if turns else None
        if not (self._extend and isinstance(last, Turn)):  # what was done before a snapshot has no tokens
            return Prompt(token_ids=np.concatenate([_encode(goal), shown]), images=images)
        return Prompt(
            token_ids=np.concatenate([last.prompt.token_ids, last.completion.token_ids, shown]),
            images=last.prompt.images + images,
        )

    def parse(self, goal: str, token_ids: Int32[np.ndarray, " C"], seen: Observation) -> Action:
        del goal, seen
        token = int(token_ids[0])
        if 1 <= token < FINISH:
            return Click(ElementId(token))
        if token == FINISH:
            return Finish()
        if TYPE <= token < TYPE + len(WORDS):
            return Type(WORDS[token - TYPE], ElementId(1))
        return Invalid(text=str(token), reason=f"token {token} is no action")

    def primitive(self, action: Action, seen: Observation) -> Action:
        del seen
        return action

    def answers(self, goal: str, action: Action, seen: Observation) -> Sequence[Int32[np.ndarray, " C"]]:
        del goal, seen
        match action:
            case Click(target) if isinstance(target, int) and 1 <= target < FINISH:
                token = int(target)
            case Finish():
                token = FINISH
            case Type(text) if text in WORDS:
                token = TYPE + WORDS.index(text)
            case _:
                return ()
        return (np.array([token, END], np.int32),)


class ScriptedEngine:
    """Answers as `answers` says; `version` moves with `update`. An answer without `END` counts as cut off."""

    def __init__(
        self, answers: Answers, *, version: int = 0, logprob: float = -0.5, faults: Sequence[Fault] = ()
    ) -> None:
        self._answers = answers
        self._logprob = logprob
        self._faults = tuple(faults)
        self._updates = 0
        self.version = version
        self.prompts: list[Prompt] = []  # every prompt asked, in order
        self.seeds: list[int] = []
        self.temperatures: list[float] = []
        self.closed = False

    async def generate(self, prompt: Prompt, *, sampling: Sampling, seed: int) -> Completion:
        nth = len(self.prompts)
        self.prompts.append(prompt)
        self.seeds.append(seed)
        self.temperatures.append(sampling.temperature)
        await strike(self._faults, Call.GENERATE, nth=nth)
        tokens = list(self._answers(prompt, seed))[: sampling.max_tokens]
        return Completion(
            token_ids=np.array(tokens, np.int32),
            logprobs=np.full(len(tokens), self._logprob, np.float32),
            versions=np.full(len(tokens), self.version, np.int32),
            truncated=tokens[-1] != END,
        )

    async def update(self, version: PolicyVersion) -> None:
        nth = self._updates
        self._updates += 1
        await strike(self._faults, Call.UPDATE, nth=nth)
        self.version = int(version)

    async def close(self) -> None:
        self.closed = True


def replay(*actions: int) -> Answers:
    """One action token per call, in this order; the last one for ever after."""
    left = list(actions)

    def answer(prompt: Prompt, seed: int) -> Sequence[int]:
        del prompt, seed
        return (left.pop(0) if len(left) > 1 else left[0], END)

    return answer


def uniform(*actions: int) -> Answers:
    """One of the action tokens, drawn by the seed alone. Give the engine `logprob=-log(len(actions))`."""

    def answer(prompt: Prompt, seed: int) -> Sequence[int]:
        del prompt
        return (actions[int(np.random.default_rng(seed).integers(len(actions)))], END)

    return answer


class ScriptedReward:
    """The environment's own reward, floored at 0; faults on demand."""

    def __init__(self, *, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self.calls = 0

    async def score(self, trajectory: Trajectory) -> float:
        nth = self.calls
        self.calls += 1
        await strike(self._faults, Call.SCORE, nth=nth)
        return max(0.0, trajectory.evidence.raw_reward) if trajectory.evidence else 0.0


class ScriptedLearner:
    """Learns nothing; counts versions and keeps every batch."""

    def __init__(self) -> None:
        self._version = PolicyVersion(0)
        self.batches: list[Batch] = []
        self.pairs: list[Preference] = []

    @property
    def version(self) -> PolicyVersion:
        return self._version

    def imitate(self, batch: Batch) -> LearnerStep:
        return self._step(batch)

    def appraise(self, samples: Sequence[Sample]) -> Sequence[Appraisal]:
        """It thinks nothing of any of them."""
        none = [np.zeros(sample.token_ids.shape, np.float32) for sample in samples]
        return [Appraisal(divergence=zeros, values=zeros) for zeros in none]

    def improve(self, batch: Batch) -> LearnerStep:
        return self._step(batch)

    def prefer(self, pairs: Sequence[Preference]) -> LearnerStep:
        self.pairs += pairs
        return self._counted(tokens=0)

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "version").write_text(str(self._version), encoding="utf-8")

    def load(self, path: Path) -> None:
        self._version = PolicyVersion(int((path / "version").read_text(encoding="utf-8")))

    def _step(self, batch: Batch) -> LearnerStep:
        self.batches.append(batch)
        return self._counted(tokens=batch.num_tokens)

    def _counted(self, *, tokens: int) -> LearnerStep:
        self._version = PolicyVersion(self._version + 1)
        return replace(_IDLE, version=self._version, trained_tokens=tokens)


_IDLE = LearnerStep(
    version=PolicyVersion(0),
    loss=0.0,
    grad_norm=0.0,
    learning_rate=0.0,
    entropy=0.0,
    kl=0.0,
    clipped=0.0,
    effective=1.0,
    mismatch_mean=0.0,
    mismatch_max=0.0,
    trained_tokens=0,
    seconds=0.0,
)


def _encode(text: str) -> Int32[np.ndarray, " N"]:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32) + _TEXT
