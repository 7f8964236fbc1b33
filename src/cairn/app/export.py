"""A run's policy as a plain Hugging Face directory."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from cairn.app.bodies import saved_pixel
from cairn.app.preparing import adaptation, begin
from cairn.app.run import config_of, saved_policy
from cairn.app.stages import last_run
from cairn.config.tables import PolicyOptions
from cairn.errors import ConfigError
from cairn.models.adapters import adapt, load_adapter, merge
from cairn.models.loading import load_language_model, load_vision_model
from cairn.models.pixel.modeling import register
from cairn.models.smollm2 import ensure_smollm2
from cairn.train.checkpoint import write_directory

ExportType = Literal["auto", "float32", "bfloat16"]

_OURS = frozenset({"learner.json", "adapter_config.json", "adapter_base.json", "config.json", "generation_config.json"})
"""Files of a checkpoint, beside all weights, that are not the processor's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    folder: Path
    model: str  # its class
    parameters: int
    dtype: str
    loads_with: str  # a line of Python


def export(run: Path, out: Path, *, checkpoint: str, dtype: ExportType) -> Exported:
    """Write a run's saved policy to the new directory `out`, adapters merged, as `from_pretrained` reads it.

    Of a run with stages it is that of the last one that has begun.
    """
    last = last_run(run)
    config = config_of(last)
    saved = saved_policy(last, checkpoint)
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: choose a new directory")
    disable_progress_bar()
    model = _whole(config.policy, saved, seed=config.seed)
    wanted = _type(config.policy, dtype)
    nn.Module.to(model, wanted)

    def fill(fresh: Path) -> None:
        model.save_pretrained(fresh)
        for file in saved.iterdir():
            if file.is_file() and file.name not in _OURS and "safetensors" not in file.name:
                shutil.copy2(file, fresh)

    write_directory(out, fill)
    return Exported(
        folder=out,
        model=type(model).__name__,
        parameters=model.num_parameters(),
        dtype=str(wanted).removeprefix("torch."),
        loads_with=_line(config.policy, out),
    )


def _whole(options: PolicyOptions, saved: Path, *, seed: int) -> PreTrainedModel:
    if options.model == "pixel":
        register()
        return saved_pixel(saved)
    begun = begin(options, _own_model(options), saved=saved)
    load = load_vision_model if options.sees else load_language_model
    model = load(begun.base)
    if begun.adapter is not None:
        adapt(model, adaptation(options, seed=seed))
        load_adapter(begun.adapter, model)
        merge(model)
    return model


def _own_model(options: PolicyOptions) -> Path:
    return ensure_smollm2() if options.model == "smollm2" else Path(options.path or "")


def _type(options: PolicyOptions, dtype: ExportType) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if options.model == "pixel" else torch.bfloat16
    return torch.float32 if dtype == "float32" else torch.bfloat16


def _line(options: PolicyOptions, out: Path) -> str:
    if options.model == "pixel":
        return f'cairn.models.pixel.modeling.PixelForCausalLM.from_pretrained("{out}")'
    kind = "AutoModelForImageTextToText" if options.sees else "AutoModelForCausalLM"
    return f'transformers.{kind}.from_pretrained("{out}")'
