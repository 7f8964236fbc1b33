"""Batches that optimiser steps are measured on, and one measured step."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int32
from PIL import Image

from cairn.bench.memory import peak_mb, reset_peak, resident_mb
from cairn.data.ids import ImageId
from cairn.data.sample import Batch, CreditedSample, Sample
from cairn.data.trajectory import Prompt
from cairn.models.memory import release_memory
from cairn.models.policy import Policy
from cairn.ports import BlobStore
from cairn.train.learner import GradientLearner

_FIRST_ID = 100  # no special token below it is sampled
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A batch, as Cairn and as TRL take it."""

    name: str
    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]
    advantages: Sequence[float]
    images: tuple[ImageId, ...] = ()  # that every prompt shows

    @property
    def tokens(self) -> int:
        """Those that a flat computation goes through."""
        return sum(len(p) + len(a) for p, a in zip(self.prompts, self.answers, strict=True))


def work_on(
    name: str,
    prompts: Sequence[Sequence[int]],
    rng: np.random.Generator,
    *,
    answer_tokens: int,
    last_id: int = 5000,
    images: tuple[ImageId, ...] = (),
) -> Work:
    """Random answers to `prompts`, as good as bad in all."""
    answers = [random_ids(rng, answer_tokens, last_id=last_id) for _ in prompts]
    advantages = [float(a) for a in np.linspace(-1.5, 1.5, len(answers))]
    return Work(name=name, prompts=prompts, answers=answers, advantages=advantages, images=images)


def random_ids(rng: np.random.Generator, length: int, *, last_id: int = 5000) -> list[int]:
    """Of ordinary tokens."""
    return [int(i) for i in rng.integers(_FIRST_ID, last_id, length)]


def noise(blobs: BlobStore, side: int) -> ImageId:
    """A square screenshot of `side` pixels that shows nothing."""
    pixels = np.random.Generator(np.random.Philox(side)).integers(0, 256, (side, side, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return blobs.put(data.getvalue())


def measured_step(learner: GradientLearner, work: Work) -> tuple[float, float]:
    """Seconds of one update, and MB at its peak: what came on top, and what the learner holds between updates."""
    batch = batch_of(learner.policy, work, version=learner.version)
    release_memory()
    gpu = learner.policy.device.type == "cuda"
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = resident_mb()
    reset_peak()
    begun = time.perf_counter()
    learner.improve(batch)
    spent = time.perf_counter() - begun  # the step's numbers are read, so that a GPU has computed them
    if gpu:
        return spent, torch.cuda.max_memory_allocated() / _MEGABYTE
    weights = sum(p.numel() * p.element_size() for p in learner.policy.model.parameters()) / _MEGABYTE
    return spent, peak_mb() - before + 3 * weights  # with Adam's two moments


@torch.no_grad()
def batch_of(policy: Policy, work: Work, *, version: int) -> Batch:
    """As if the policy had sampled it."""
    prompts = [Prompt(token_ids=np.array(prompt, np.int32), images=work.images) for prompt in work.prompts]
    answers: list[Int32[np.ndarray, " A"]] = [np.array(answer, np.int32) for answer in work.answers]
    everywhere = [np.arange(len(answer)) for answer in work.answers]
    chosen = policy.scores(prompts, answers, everywhere, temperature=1.0).chosen.cpu().numpy()
    logprobs = np.split(chosen, np.cumsum([answer.shape[0] for answer in answers])[:-1])
    return Batch(
        samples=tuple(
            _sample(prompt, answer, likely, advantage, version=version, siblings=len(answers))
            for prompt, answer, likely, advantage in zip(prompts, answers, logprobs, work.advantages, strict=True)
        )
    )


def _sample(
    prompt: Prompt,
    answer: Int32[np.ndarray, " A"],
    logprobs: Float32[np.ndarray, " A"],
    advantage: float,
    *,
    version: int,
    siblings: int,
) -> CreditedSample:
    begun, said = len(prompt.token_ids), len(answer)
    mask = np.arange(begun + said) >= begun
    share = mask.astype(np.float32) / (said * siblings)
    sample = Sample(
        token_ids=np.concatenate([prompt.token_ids, answer]),
        loss_mask=mask,
        logprobs=np.concatenate([np.zeros(begun, np.float32), logprobs]),
        versions=np.where(mask, version, -1).astype(np.int32),
        images=prompt.images,
    )
    positive, negative = share * max(advantage, 0.0), share * min(advantage, 0.0)
    return CreditedSample(sample=sample, positive=positive, negative=negative, weights=share)
