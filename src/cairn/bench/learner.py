"""What it saves that shared tokens are computed once: optimiser steps on a tree, flat, and by TRL, in turn."""

import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.table import Table

from cairn.bench.seeing import SCREENSHOT, Seeing
from cairn.bench.trainers import TrlTrainer
from cairn.bench.work import Work, measured_step, random_ids, work_on
from cairn.models.loading import load_language_model
from cairn.models.policy import Policy
from cairn.models.vision.tiny import TinySize
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner, Settings
from cairn.train.optimisation import Optimisation

_RATE = 1e-6
_SIBLINGS, _STRANGERS = "siblings", "nothing shared"
SEEING_SIZE = TinySize(width=640, layers=8, vision_width=192, vision_layers=4, image=840, vocabulary=1024)
"""Of the model that sees: 30 million weights, so that computing takes longer than calling, and a screenshot that is 900
tokens to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerBenchOptions:
    """What is computed, and how often. `python`: of the virtual environment that has TRL; None: without TRL."""

    model: Path | None  # of text; None: without text
    seeing: TinySize | None = SEEING_SIZE  # of the model that sees; None: without it
    python: Path | None = None
    repetitions: int = 3
    answers: int = 8
    answer_tokens: int = 40
    prompt_tokens: int = 1024
    alone_tokens: int = 256  # of each prompt, where nothing is shared
    threads: int = 2


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
    """A group of siblings at one prompt, answers that share nothing, and a group of siblings at one screenshot."""
    torch.set_num_threads(options.threads)
    text = () if options.model is None else _bench_text(options.model, options, progress)
    return (*text, *(() if options.seeing is None else _bench_seeing(options.seeing, options, progress)))


def _bench_text(model: Path, options: LearnerBenchOptions, progress: Callable[[str], None]) -> tuple[Compared, ...]:
    works = (_siblings(options), _strangers(options))
    with ExitStack() as stack:
        trl = None
        if options.python is not None:
            progress("TRL loads the model")
            trl = stack.enter_context(
                TrlTrainer(python=options.python, model=model, learning_rate=_RATE, threads=options.threads)
            )
        tree, flat = (_learner(_reader(model, sharing=sharing)) for sharing in (True, False))
        return tuple(_compared(work, tree, flat, trl, options, progress) for work in works)


def _bench_seeing(
    size: TinySize, options: LearnerBenchOptions, progress: Callable[[str], None]
) -> tuple[Compared, ...]:
    """Flat, too, looks at the screenshot once: what is compared is reading."""
    with TemporaryDirectory(prefix="cairn-bench-") as folder:
        progress("a vision-language model is made")
        seeing = Seeing(Path(folder), size)
        work = seeing.work(
            answers=options.answers, answer_tokens=options.answer_tokens, prompt_tokens=options.prompt_tokens
        )
        tree, flat = (
            _learner(seeing.policy(sharing=sharing, device=torch.device("cpu"), autocast=torch.bfloat16), seeing)
            for sharing in (True, False)
        )
        return (_compared(work, tree, flat, None, options, progress),)


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
            spent, peak = measured_step(learner, work)
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


def _reader(model: Path, *, sharing: bool) -> Policy:
    return Policy(model=load_language_model(model, attention="sdpa"), autocast=torch.bfloat16, sharing=sharing)


def _learner(policy: Policy, seeing: Seeing | None = None) -> GradientLearner:
    return GradientLearner(policy=policy, settings=bench_settings(seeing))


def bench_settings(seeing: Seeing | None = None, *, bounds: Bounds | None = None) -> Settings:
    """One micro-batch, and a rate that moves little."""
    optimisation = Optimisation(learning_rate=_RATE)
    return Settings(
        imitation=optimisation,
        improvement=optimisation,
        max_tokens=1 << 20,
        bounds=bounds or Bounds(),
        placeholder_id=None if seeing is None else seeing.eyes.placeholder_id,
        image_tokens=None if seeing is None else seeing.eyes.tokens,
    )


def _siblings(options: LearnerBenchOptions) -> Work:
    rng = np.random.default_rng(0)
    prompt = random_ids(rng, options.prompt_tokens)
    return work_on(_SIBLINGS, [prompt] * options.answers, rng, answer_tokens=options.answer_tokens)


def _strangers(options: LearnerBenchOptions) -> Work:
    rng = np.random.default_rng(1)
    prompts = [random_ids(rng, options.alone_tokens) for _ in range(options.answers)]
    return work_on(_STRANGERS, prompts, rng, answer_tokens=options.answer_tokens)


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
    named = {one.name: one for one in found}
    siblings, strangers, seen = (named.get(name) for name in (_SIBLINGS, _STRANGERS, SCREENSHOT))
    text = siblings and {
        "tree_vs_flat": siblings.tree_vs_flat,
        "memory_ratio": siblings.memory_ratio,
        "vs_trl_flat": strangers and strangers.tree_vs_trl,
        "vs_trl_shared": siblings.tree_vs_trl,
    }
    vlm = seen and {"tree_vs_flat": seen.tree_vs_flat, "memory_ratio": seen.memory_ratio}
    return json.dumps({"text": text, "vlm": vlm, "nothing_shared": strangers and strangers.tree_vs_flat})
