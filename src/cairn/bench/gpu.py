"""What is to be seen on a machine with a GPU: `scripts/gpu-check` runs this module. Nothing is downloaded.

Every part is told by itself, so that one that fails hides no other. Without a GPU, or dry, everything is small and runs
on the CPU: then nothing that is told says anything of a GPU.
"""

import argparse
import json
import platform
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, cast

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from cairn.bench.learner import bench_settings
from cairn.bench.seeing import Seeing
from cairn.bench.work import Work, batch_of, measured_step, random_ids, work_on
from cairn.data.trajectory import Prompt
from cairn.models.attention import flex_works, register_tree_attention
from cairn.models.loading import random_language_model
from cairn.models.policy import Policy
from cairn.models.trees import Mask, TreeReader
from cairn.models.vision.tiny import TinySize
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner

_APART = Bounds(mean=1.0, token=10.0)  # bfloat16 beside float32, on random weights
_CLOSE = 1e-3  # of the largest value, in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of what is computed."""

    width: int
    layers: int
    vocabulary: int
    prompt_tokens: int
    answer_tokens: int
    answers: int
    repetitions: int
    seeing: TinySize


LARGE = Sizes(
    width=1024,
    layers=12,
    vocabulary=32_768,
    prompt_tokens=2048,
    answer_tokens=128,
    answers=8,
    repetitions=5,
    seeing=TinySize(width=512, layers=8, vision_width=256, vision_layers=8, image=840, vocabulary=1024),
)
SMALL = Sizes(
    width=64,
    layers=2,
    vocabulary=512,
    prompt_tokens=96,
    answer_tokens=8,
    answers=3,
    repetitions=1,
    seeing=TinySize(image=112),
)

Told = dict[str, float | str | bool | None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check this machine; the last line is JSON. The status is 1 where a part has failed."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu-check",
        description="What Cairn's learner does on this machine's GPU, in five minutes at most.",
    )
    parser.add_argument("--dry-run", action="store_true", help="small, and on the CPU, even where there is a GPU")
    dry = parser.parse_args(arguments).dry_run or not torch.cuda.is_available()
    device = torch.device("cpu" if dry else "cuda")
    disable_progress_bar()
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")  # on the CPU it is meant
    sizes = SMALL if dry else LARGE
    found: dict[str, object] = {"dry_run": dry, **_about(device)}
    sys.stderr.write(f"gpu-check: on {found['device']}{', dry: this says nothing of a GPU' if dry else ''}\n")
    parts: dict[str, Callable[[torch.device, Sizes], Told]] = {
        "attention": check_attention,
        "tree": check_tree,
        "precision": check_precision,
        "vision": check_vision,
    }
    told = {name: _told(name, part, device, sizes) for name, part in parts.items()}
    well = all(part["ok"] for part in told.values())
    sys.stdout.write(json.dumps({**found, **told, "ok": well}) + "\n")
    return 0 if well else 1


def check_attention(device: torch.device, sizes: Sizes) -> Told:
    """FlexAttention beside masked attention in float32: hidden states, a loss, and the gradients of all weights.

    On a CPU FlexAttention has no gradient, and hidden states alone are compared.
    """
    model = _model(sizes, device, layers=2)
    head = cast("torch.nn.Module", model.get_output_embeddings())
    rng = np.random.default_rng(0)
    shared = rng.integers(0, sizes.vocabulary, 2 * sizes.prompt_tokens // 3)
    ends = [rng.integers(0, sizes.vocabulary, size) for size in (3, 90, 41, sizes.prompt_tokens // 3)]
    sequences = [np.concatenate([shared, end]) for end in ends]

    def read(mask: Mask, *, gradients: bool) -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(gradients):
            reader = TreeReader(model=model, head=head, mask=mask)
            states, _ = reader.read(sequences, [np.arange(len(one) - 1) for one in sequences])
            wanted = torch.as_tensor(np.concatenate([one[1:] for one in sequences])).to(device)
            loss = -head(states).log_softmax(-1).gather(-1, wanted[:, None]).mean()
        if gradients:
            loss.backward()
        return [states.detach(), loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    gradients = device.type == "cuda"
    pairs = zip(read("blocks", gradients=gradients), read("boolean", gradients=gradients), strict=True)
    apart = max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)
    chosen = not gradients or flex_works(device, torch.float32)
    return {"ok": apart <= _CLOSE and chosen, "largest_difference": apart, "gradients": gradients, "chosen": chosen}


def check_tree(device: torch.device, sizes: Sizes) -> Told:
    """Tokens per second and peak memory of an update on siblings, as a tree and flat, in turn."""
    rng = np.random.default_rng(1)
    prompt = random_ids(rng, sizes.prompt_tokens, last_id=sizes.vocabulary)
    work = work_on(
        "siblings", [prompt] * sizes.answers, rng, answer_tokens=sizes.answer_tokens, last_id=sizes.vocabulary
    )
    seconds: dict[str, list[float]] = {"tree": [], "flat": []}
    peaks: dict[str, float] = {}
    mask = None
    for name in seconds:  # one after the other: two learners at once would not fit a smaller GPU
        policy = Policy(model=_model(sizes, device), autocast=torch.bfloat16, sharing=name == "tree")
        mask = policy.mask
        learner = GradientLearner(policy=policy, settings=bench_settings(bounds=_APART))
        for repetition in range(-1, sizes.repetitions):  # the first compiles, and warms up
            spent, peak = measured_step(learner, work)
            if repetition >= 0:
                seconds[name].append(spent)
                peaks[name] = peak
        del policy, learner
        _forget(device)
    tree, flat = (statistics.median(seconds[name]) for name in ("tree", "flat"))
    return {
        "ok": True,
        "attention": "flex" if mask == "blocks" else "sdpa",
        "tree_tokens_per_second": work.tokens / tree,
        "flat_tokens_per_second": work.tokens / flat,
        "tree_vs_flat": flat / tree,
        "tree_peak_mb": peaks["tree"],
        "flat_peak_mb": peaks["flat"],
        "memory_ratio": peaks["tree"] / peaks["flat"],
    }


def check_precision(device: torch.device, sizes: Sizes) -> Told:
    """By how much log-probabilities under bfloat16 differ from those of float32, on the same weights."""
    model = _model(sizes, device)
    rng = np.random.default_rng(3)
    prompt = np.array(random_ids(rng, sizes.prompt_tokens, last_id=sizes.vocabulary), np.int32)
    answers = [
        np.array(random_ids(rng, sizes.answer_tokens, last_id=sizes.vocabulary), np.int32) for _ in range(sizes.answers)
    ]
    prompts = [Prompt(token_ids=prompt, images=())] * len(answers)
    everywhere = [np.arange(len(answer)) for answer in answers]
    with torch.no_grad():
        full, half = (
            Policy(model=model, autocast=autocast).scores(prompts, answers, everywhere, temperature=1.0).chosen
            for autocast in (None, torch.bfloat16)
        )
    apart = (full - half).abs()
    mean, largest = float(apart.mean()), float(apart.max())
    return {"ok": mean < Bounds().mean and largest < Bounds().token, "mean": mean, "largest": largest}


def check_vision(device: torch.device, sizes: Sizes) -> Told:
    """One update of a small vision-language model of a real class, on answers to a screenshot."""
    with TemporaryDirectory(prefix="cairn-gpu-check-") as folder:
        seeing = Seeing(Path(folder), sizes.seeing)
        work: Work = seeing.work(
            answers=sizes.answers, answer_tokens=sizes.answer_tokens, prompt_tokens=sizes.prompt_tokens
        )
        policy = seeing.policy(sharing=True, device=device, autocast=torch.bfloat16)
        learner = GradientLearner(policy=policy, settings=bench_settings(seeing, bounds=_APART))
        step = learner.improve(batch_of(policy, work, version=0))
    eyes = [p for name, p in policy.model.named_parameters() if "visual" in name]
    return {
        "ok": step.grad_norm > 0 and bool(eyes) and all(bool(p.isfinite().all()) for p in policy.model.parameters()),
        "attention": "flex" if policy.mask == "blocks" else "sdpa",
        "loss": step.loss,
        "grad_norm": step.grad_norm,
        "engine_difference": step.mismatch_max,
        "seconds": step.seconds,
    }


def _told(
    name: str, part: Callable[[torch.device, Sizes], Told], device: torch.device, sizes: Sizes
) -> dict[str, float | str | bool | None]:
    begun = time.perf_counter()
    try:
        told = part(device, sizes)
    except Exception as error:  # noqa: BLE001 - whatever a GPU, its driver or a compiler raises is what is to be told
        traceback.print_exc()
        told: Told = {"ok": False, "error": f"{type(error).__name__}: {error}".splitlines()[0][:400]}
    _forget(device)
    seconds = round(time.perf_counter() - begun, 1)
    sys.stderr.write(f"gpu-check: {name}: {'well' if told['ok'] else 'NOT WELL'}, {seconds} s\n")
    return {**told, "took": seconds}


def _about(device: torch.device) -> dict[str, str | float | None]:
    gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if gpu else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - torch does not say
    return {
        "device": torch.cuda.get_device_name(device) if gpu else f"the CPU ({platform.machine()})",
        "memory_gb": None if memory is None else round(cast("int", memory) / 2**30, 1),
        "capability": ".".join(map(str, torch.cuda.get_device_capability(device))) if gpu else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _model(sizes: Sizes, device: torch.device, *, layers: int | None = None) -> PreTrainedModel:
    """Random weights of a size at which a GPU has work to do."""
    heads = max(4, sizes.width // 128)
    config = LlamaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        intermediate_size=3 * sizes.width,
        num_hidden_layers=layers or sizes.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=65_536,
        tie_word_embeddings=True,
    )
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    with torch.device(kind):
        model = random_language_model(config, attention=register_tree_attention())
    return cast("PreTrainedModel", torch.nn.Module.to(model, dtype=torch.float32))


def _forget(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
