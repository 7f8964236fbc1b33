"""What it saves that shared tokens are computed once: optimiser steps on a tree, flat, and by TRL, in turn."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int32
from rich.table import Table

from cairn.bench.memory import peak_mb, reset_peak, resident_mb
from cairn.bench.trainers import TrlTrainer
from cairn.data.sample import Batch, CreditedSample, Sample
from cairn.data.trajectory import Prompt
from cairn.models.loading import load_language_model
from cairn.models.memory import release_memory
from cairn.models.policy import Policy
from cairn.train.learner import GradientLearner, Settings
from cairn.train.optimisation import Optimisation

_RATE = 1e-6
_FIRST_ID = 100  # no special token below it is sampled
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerBenchOptions:
    """What is computed, and how often. `python`: of the virtual environment that has TRL; None: without TRL."""

    model: Path
    python: Path | None = None
    repetitions: int = 3
    answers: int = 8
    answer_tokens: int = 40
    prompt_tokens: int = 1024
    alone_tokens: int = 256  # of each prompt, where nothing is shared
    threads: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A batch, as Cairn and as TRL take it."""

    name: str
    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]
    advantages: Sequence[float]

    @property
    def tokens(self) -> int:
        """Those that a flat computation goes through."""
        return sum(len(p) + len(a) for p, a in zip(self.prompts, self.answers, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to compute one batch: medians over the repetitions."""

    tokens_per_second: float
    peak_mb: float | None  # weights, gradients and moments included; None of another process


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One batch. Ratios are medians of those within a repetition; above 1: the tree is faster."""

    name: str
    tree: Side
    flat: Side
    trl: Side | None
    tree_vs_flat: float
    tree_vs_trl: float | None
    flat_vs_trl: float | None
    memory_ratio: float


def bench_learner(
    options: LearnerBenchOptions, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[Compared, ...]:
    """A group of siblings at one prompt, and answers that share nothing."""
    torch.set_num_threads(options.threads)
    works = (_siblings(options), _strangers(options))
    with ExitStack() as stack:
        trl = None
        if options.python is not None:
            progress("TRL loads the model")
            trl = stack.enter_context(
                TrlTrainer(python=options.python, model=options.model, learning_rate=_RATE, threads=options.threads)
            )
        tree, flat = (_learner(options, sharing=sharing) for sharing in (True, False))
        return tuple(_compared(work, tree, flat, trl, options, progress) for work in works)


def _compared(
    work: Work,
    tree: GradientLearner,
    flat: GradientLearner,
    trl: TrlTrainer | None,
    options: LearnerBenchOptions,
    progress: Callable[[str], None],
) -> Compared:
    seconds: dict[str, list[float]] = {"tree": [], "flat": [], "trl": []}
    peaks: dict[str, list[float]] = {"tree": [], "flat": []}
    for repetition in range(-1, options.repetitions):  # the first warms up
        progress(f"{work.name}, {'warming up' if repetition < 0 else f'repetition {repetition + 1}'}")
        for name, learner in (("tree", tree), ("flat", flat)):
            spent, peak = _step(learner, work)
            if repetition >= 0:
                seconds[name].append(spent)
                peaks[name].append(peak)
        if trl is not None:
            spent = trl.step(work.prompts, work.answers, work.advantages)
            if repetition >= 0:
                seconds["trl"].append(spent)

    def ratio(slow: str, fast: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))

    def side(name: str) -> Side:
        peak = statistics.median(peaks[name]) if name in peaks else None
        return Side(tokens_per_second=work.tokens / statistics.median(seconds[name]), peak_mb=peak)

    return Compared(
        name=work.name,
        tree=side("tree"),
        flat=side("flat"),
        trl=side("trl") if trl else None,
        tree_vs_flat=ratio("flat", "tree"),
        tree_vs_trl=ratio("trl", "tree") if trl else None,
        flat_vs_trl=ratio("trl", "flat") if trl else None,
        memory_ratio=statistics.median(a / b for a, b in zip(peaks["tree"], peaks["flat"], strict=True)),
    )


def _step(learner: GradientLearner, work: Work) -> tuple[float, float]:
    """Seconds of one update, and MB at its peak: what came on top, and what the learner holds between updates."""
    batch = _batch(learner.policy, work, version=learner.version)
    release_memory()
    before = resident_mb()
    reset_peak()
    begun = time.perf_counter()
    learner.improve(batch)
    spent = time.perf_counter() - begun
    weights = sum(p.numel() * p.element_size() for p in learner.policy.model.parameters()) / _MEGABYTE
    return spent, peak_mb() - before + 3 * weights  # with Adam's two moments


def _learner(options: LearnerBenchOptions, *, sharing: bool) -> GradientLearner:
    policy = Policy(
        model=load_language_model(options.model, attention="sdpa"), autocast=torch.bfloat16, sharing=sharing
    )
    optimisation = Optimisation(learning_rate=_RATE)
    settings = Settings(imitation=optimisation, improvement=optimisation, max_tokens=1 << 20)
    return GradientLearner(policy=policy, settings=settings)


@torch.no_grad()
def _batch(policy: Policy, work: Work, *, version: int) -> Batch:
    """As if the policy had sampled it."""
    prompts = [Prompt(token_ids=np.array(prompt, np.int32), images=()) for prompt in work.prompts]
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
        images=(),
    )
    positive, negative = share * max(advantage, 0.0), share * min(advantage, 0.0)
    return CreditedSample(sample=sample, positive=positive, negative=negative, weights=share)


def _siblings(options: LearnerBenchOptions) -> Work:
    rng = np.random.default_rng(0)
    prompt = _ids(rng, options.prompt_tokens)
    return _work("siblings", [prompt] * options.answers, options, rng)


def _strangers(options: LearnerBenchOptions) -> Work:
    rng = np.random.default_rng(1)
    return _work("nothing shared", [_ids(rng, options.alone_tokens) for _ in range(options.answers)], options, rng)


def _work(name: str, prompts: Sequence[Sequence[int]], options: LearnerBenchOptions, rng: np.random.Generator) -> Work:
    answers = [_ids(rng, options.answer_tokens) for _ in prompts]
    advantages = [float(a) for a in np.linspace(-1.5, 1.5, len(answers))]
    return Work(name=name, prompts=prompts, answers=answers, advantages=advantages)


def _ids(rng: np.random.Generator, length: int) -> list[int]:
    return [int(i) for i in rng.integers(_FIRST_ID, 5000, length)]


def learner_table(found: Sequence[Compared]) -> Table:
    """One line for each batch."""
    table = Table("batch", "tree", "flat", "TRL", "tree / flat", "tree / TRL", "flat / TRL", "memory, tree / flat")
    for one in found:
        table.add_row(
            one.name,
            *(_rate(side) for side in (one.tree, one.flat, one.trl)),
            *(_times(value) for value in (one.tree_vs_flat, one.tree_vs_trl, one.flat_vs_trl, one.memory_ratio)),
        )
    return table


def _rate(side: Side | None) -> str:
    return "-" if side is None else f"{side.tokens_per_second:.0f} tokens/s"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def learner_json(found: Sequence[Compared]) -> str:
    """The last line: ratios above 1 are in favour of what is named first."""
    siblings, strangers = found
    text = {
        "tree_vs_flat": siblings.tree_vs_flat,
        "memory_ratio": siblings.memory_ratio,
        "vs_trl_flat": strangers.tree_vs_trl,
        "vs_trl_shared": siblings.tree_vs_trl,
    }
    return json.dumps({"text": text, "nothing_shared": strangers.tree_vs_flat})
