"""Behaviour cloning: what to imitate, and in which order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32

from cairn.data.ids import TemplateId
from cairn.data.sample import Batch, CreditedSample, Sample
from cairn.data.trajectory import Outcome, Prompt, ScoredGroup
from cairn.errors import ConfigError
from cairn.ports import Codec
from cairn.rollout.demonstrate import EXPERT_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One turn to imitate: the prompt, and every answer that is right there."""

    template: TemplateId
    prompt: Prompt
    answers: Sequence[Int32[np.ndarray, " C"]]


def lessons_from(groups: Iterable[ScoredGroup], codec: Codec) -> tuple[Lesson, ...]:
    """Every turn of every successful demonstration."""
    found: list[Lesson] = []
    for group in groups:
        for member in group.members:
            if member.outcome is not Outcome.SUCCESS:
                continue
            trajectory = member.trajectory
            found += [
                Lesson(
                    template=group.plan.task.template.id,
                    prompt=turn.prompt,
                    answers=codec.answers(turn.observation.instruction(trajectory.goal), turn.action, turn.observation),
                )
                for turn in trajectory.turns
            ]
    return tuple(found)


Weigh = Callable[[Int32[np.ndarray, " C"]], Float64[np.ndarray, " C"]]
"""What each token of an answer counts, beside the answer's others; positive."""


def evenly(answer: Int32[np.ndarray, " C"]) -> Float64[np.ndarray, " C"]:
    """All tokens the same."""
    return np.ones(answer.shape)


class Curriculum:
    """Shuffled passes over the lessons; where several answers are right, each visit draws some of them.

    The learner computes a prompt once however many answers stand after it, so that further draws cost little.

    Update `u` of seed `s` is a pure function of (s, u), so that a resumed run sees what it would have seen.
    """

    def __init__(
        self,
        lessons: Sequence[Lesson],
        *,
        batch_size: int,
        answers: int,
        seed: int,
        weigh: Weigh = evenly,
    ) -> None:
        """`batch_size` counts lessons; `answers` is how many are drawn for each at most. Lessons never change."""
        self._weigh = weigh
        self._lessons = lessons
        self._batch_size = min(batch_size, len(self._lessons))
        self._answers = answers
        self._seed = seed

    def batch(self, update: int) -> Batch:
        """The batch of one update: every lesson weighs the same, and its tokens share that as `weigh` says."""
        if not self._lessons:
            raise ConfigError("there is nothing to imitate: no demonstration succeeded")
        per_pass = len(self._lessons) // self._batch_size
        lap, place = divmod(update, per_pass)
        order = np.random.default_rng((self._seed, lap)).permutation(len(self._lessons))
        rng = np.random.default_rng((self._seed, lap, place))
        samples: list[CreditedSample] = []
        for number in order[place * self._batch_size : (place + 1) * self._batch_size]:
            lesson = self._lessons[int(number)]
            drawn = self._draw(lesson, rng)
            shares = [self._weigh(answer) for answer in drawn]
            whole = self._batch_size * sum(float(share.sum()) for share in shares)
            samples += [
                _credited(lesson.prompt, answer, share / whole) for answer, share in zip(drawn, shares, strict=True)
            ]
        return Batch(samples=tuple(samples))

    def _draw(self, lesson: Lesson, rng: np.random.Generator) -> list[Int32[np.ndarray, " C"]]:
        chosen = rng.permutation(len(lesson.answers))[: self._answers]
        return [lesson.answers[int(i)] for i in chosen]


def _credited(prompt: Prompt, answer: Int32[np.ndarray, " C"], shares: Float64[np.ndarray, " C"]) -> CreditedSample:
    prompted, answered = prompt.token_ids.shape[0], answer.shape[0]
    mask = np.zeros(prompted + answered, np.bool_)
    mask[prompted:] = True
    weights = np.zeros(mask.shape, np.float32)
    weights[prompted:] = shares
    sample = Sample(
        token_ids=np.concatenate([prompt.token_ids, answer]).astype(np.int32),
        loss_mask=mask,
        logprobs=np.zeros(mask.shape, np.float32),
        versions=np.full(mask.shape, EXPERT_VERSION, np.int32),
        images=prompt.images,
    )
    return CreditedSample(sample=sample, positive=weights, negative=np.zeros_like(weights), weights=weights)
