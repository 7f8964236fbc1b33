"""A loaded model made ready for its learner: where it is computed, what is trained, and what is kept meanwhile."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from cairn.config.tables import PolicyOptions
from cairn.errors import ConfigError
from cairn.models.adapters import Adaptation, adapt, base_of, is_adapter, load_adapter
from cairn.models.loading import device_of, working_type
from cairn.models.recomputing import recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a policy's weights come from."""

    base: Path  # a whole model
    adapter: Path | None  # what is put on it


def begin(options: PolicyOptions, path: Path, *, saved: Path | None) -> Beginning:
    """The recipe's own model in `path`, or what was saved of it. Adapters are put on the model that they name."""
    if saved is None or not is_adapter(saved):
        return Beginning(base=saved or path, adapter=None)
    if not options.lora_rank:
        raise ConfigError(
            f"{saved} holds an adapter alone: set policy.lora_rank as in its run, or begin with the model that "
            "`cairn policy export` makes of it"
        )
    named = base_of(saved)
    return Beginning(base=named if (named / "config.json").is_file() else path, adapter=saved)


def loading_type(options: PolicyOptions) -> torch.dtype:
    """What weights are read in: float32, where they are trained; else as they are to stay, where that is known."""
    if not options.lora_rank or options.lora_base == "float32":
        return torch.float32
    if options.lora_base == "bfloat16" or options.dtype == "bfloat16":
        return torch.bfloat16
    fast = options.dtype == "auto" and device_of(options.device).type == "cuda"
    return torch.bfloat16 if fast else torch.float32


def prepared(
    model: PreTrainedModel, options: PolicyOptions, *, seed: int, adapter: Path | None = None
) -> PreTrainedModel:
    """`model`, changed in place as the recipe says."""
    nn.Module.to(model, device_of(options.device))
    if options.lora_rank:
        _cast(model, _base_type(options, model))
        adapt(model, adaptation(options, seed=seed))
        if adapter is not None:
            load_adapter(adapter, model)
    if options.gradient_checkpointing:
        recompute(model)
    return model


def adaptation(options: PolicyOptions, *, seed: int) -> Adaptation:
    """The adapters of a recipe."""
    return Adaptation(
        rank=options.lora_rank,
        alpha=options.lora_alpha or 2.0 * options.lora_rank,
        targets=tuple(options.lora_targets),
        seed=seed,
    )


def engine_type(options: PolicyOptions, model: PreTrainedModel) -> torch.dtype:
    """What the engine computes in."""
    match options.dtype:
        case "auto":
            return working_type(model) or model.dtype
        case "bfloat16":
            return torch.bfloat16
        case "float32":
            return torch.float32


def _base_type(options: PolicyOptions, model: PreTrainedModel) -> torch.dtype:
    match options.lora_base:
        case "auto":
            return engine_type(options, model)
        case "bfloat16":
            return torch.bfloat16
        case "float32":
            return torch.float32


def _cast(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Weights alone: buffers that tell positions need their precision."""
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)  # the same where it is of that type
