"""What an update of a language model takes in memory: all weights or adapters, layers kept or computed again."""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from rich.table import Table
from transformers import LlamaConfig

from cairn.bench.memory import peak_mb, reset_peak, resident_mb
from cairn.data.sample import Batch, CreditedSample, Sample
from cairn.models.adapters import Adaptation, adapt
from cairn.models.loading import random_language_model
from cairn.models.memory import limit_caches, release_memory
from cairn.models.policy import Policy
from cairn.models.recomputing import recompute
from cairn.train.learner import GradientLearner, Settings
from cairn.train.optimisation import Optimisation

_FIRST_ID = 100
_MEGABYTE = 2**20
_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateShape:
    """A model with random weights, and what it is updated on."""

    width: int = 512
    layers: int = 12
    vocabulary: int = 8192
    prompt_tokens: int = 1024
    answers: int = 8
    answer_tokens: int = 40
    repetitions: int = 3
    threads: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to update."""

    name: str
    state: Literal["float32", "bfloat16", "8bit"] = "float32"
    rank: int = 0
    half: bool = False  # frozen weights in bfloat16
    recomputed: bool = False


WAYS = (
    Way(name="all weights"),
    Way(name="all weights, checkpointing", recomputed=True),
    Way(name="all weights, checkpointing, bfloat16 moments", recomputed=True, state="bfloat16"),
    Way(name="all weights, checkpointing, 8-bit moments", recomputed=True, state="8bit"),
    Way(name="LoRA 16", rank=16),
    Way(name="LoRA 16, checkpointing", rank=16, recomputed=True),
    Way(name="LoRA 16, checkpointing, bfloat16 base", rank=16, recomputed=True, half=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """MB and seconds of one way: medians over the repetitions."""

    name: str
    weights_mb: float
    moments_mb: float
    passing_mb: float  # gradients, what layers keep, and what the step needs: gone after it
    seconds: float

    @property
    def total_mb(self) -> float:
        """At the peak."""
        return self.weights_mb + self.moments_mb + self.passing_mb


def bench_updates(
    shape: UpdateShape, *, ways: Sequence[Way] = WAYS, progress: Callable[[str], None] = lambda _: None
) -> tuple[Taken, ...]:
    """Each way in a process of its own, one after another."""
    found: list[Taken] = []
    for way in ways:
        progress(way.name)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=limit_caches) as pool:
            found.append(pool.submit(measure, shape, way).result(timeout=_SECONDS))
    return tuple(found)


def measure(shape: UpdateShape, way: Way) -> Taken:
    """In this process. The first update makes the moments and is not counted."""
    torch.set_num_threads(shape.threads)
    learner = _learner(shape, way)
    batch = _batch(shape)
    learner.imitate(batch)
    passing: list[float] = []
    seconds: list[float] = []
    for _ in range(shape.repetitions):
        release_memory()
        before = resident_mb()
        reset_peak()
        begun = time.perf_counter()
        learner.imitate(batch)
        seconds.append(time.perf_counter() - begun)
        passing.append(peak_mb() - before)
    weights = sum(weight.numel() * weight.element_size() for weight in learner.policy.model.parameters())
    return Taken(
        name=way.name,
        weights_mb=weights / _MEGABYTE,
        moments_mb=learner.moment_bytes / _MEGABYTE,
        passing_mb=statistics.median(passing),
        seconds=statistics.median(seconds),
    )


def _learner(shape: UpdateShape, way: Way) -> GradientLearner:
    config = LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.width * 11 // 4,
        num_hidden_layers=shape.layers,
        num_attention_heads=max(1, shape.width // 64),
        vocab_size=shape.vocabulary,
        tie_word_embeddings=True,
    )
    model = random_language_model(config, attention="sdpa")
    if way.half:
        for weight in model.parameters():
            weight.data = weight.data.bfloat16()
    if way.rank:
        adapt(model, Adaptation(rank=way.rank, alpha=2.0 * way.rank))
    if way.recomputed:
        recompute(model)
    optimisation = Optimisation(learning_rate=1e-6, state=way.state)
    settings = Settings(imitation=optimisation, improvement=optimisation, max_tokens=1 << 20)
    return GradientLearner(policy=Policy(model=model), settings=settings)


def _batch(shape: UpdateShape) -> Batch:
    """Answers to one prompt."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(_FIRST_ID, shape.vocabulary, shape.prompt_tokens)
    mask = np.arange(shape.prompt_tokens + shape.answer_tokens) >= shape.prompt_tokens
    none = np.zeros(mask.shape, np.float32)
    weights = mask.astype(np.float32) / (shape.answers * shape.answer_tokens)
    answers = [rng.integers(_FIRST_ID, shape.vocabulary, shape.answer_tokens) for _ in range(shape.answers)]
    samples = [
        Sample(
            token_ids=np.concatenate([prompt, answer]).astype(np.int32),
            loss_mask=mask,
            logprobs=none,
            versions=np.where(mask, 0, -1).astype(np.int32),
            images=(),
        )
        for answer in answers
    ]
    return Batch(
        samples=tuple(CreditedSample(sample=s, positive=none, negative=none, weights=weights) for s in samples)
    )


def updates_table(found: Sequence[Taken]) -> Table:
    """One line for each way."""
    table = Table("MB", "weights", "moments", "during an update", "at the peak", "seconds")
    for one in found:
        numbers = (one.weights_mb, one.moments_mb, one.passing_mb, one.total_mb)
        table.add_row(one.name, *(f"{value:.0f}" for value in numbers), f"{one.seconds:.2f}")
    return table


def updates_json(found: Sequence[Taken]) -> str:
    """The last line, by way: MB and seconds, and the peak as a share of the first one's."""
    first = found[0].total_mb
    return json.dumps(
        {
            one.name: {
                "weights_mb": round(one.weights_mb, 1),
                "moments_mb": round(one.moments_mb, 1),
                "passing_mb": round(one.passing_mb, 1),
                "seconds": round(one.seconds, 3),
                "peak_share": round(one.total_mb / first, 3),
            }
            for one in found
        }
    )
