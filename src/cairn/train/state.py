"""What a learner's checkpoint holds: the model as `from_pretrained` reads it, and beside it safetensors and JSON only.

config.json, model.safetensors, …   the model (and its processor), or
adapter_config.json, …              the adapter alone, and what it was trained on
optimiser.safetensors               moments, by "phase/weight/moment"
learner.json                        version and step counts
reference/                          the policy that a KL term holds on to, where there is one
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from cairn.errors import ConfigError
from cairn.models.saving import load_weights, save_model
from cairn.train.checkpoint import existing, write_directory
from cairn.train.optimisation import Optimiser
from cairn.train.reference import Reference

Phase = Literal["imitate", "improve"]
PHASES: tuple[Phase, ...] = ("imitate", "improve")

_REFERENCE = "reference"
_HEADER = "learner.json"
_MOMENTS = "optimiser.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """What there is to save."""

    version: int
    model: PreTrainedModel
    reference: Reference | None
    optimisers: Mapping[Phase, Optimiser]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint says of itself."""

    version: int
    reference: Path | None  # where the reference policy is
    reference_age: int  # updates since it was the policy


def save(path: Path, state: LearnerState, *, save_processor: Callable[[Path], None] | None) -> None:
    """Write `state` to the directory `path`, all of it or nothing."""

    def fill(fresh: Path) -> None:
        save_model(state.model, fresh)
        if save_processor is not None:
            save_processor(fresh)
        if state.reference is not None:
            state.reference.save(fresh / _REFERENCE)
        moments = {f"{phase}/{n}": t for phase, o in state.optimisers.items() for n, t in o.tensors()}
        save_file(moments, fresh / _MOMENTS)
        steps = {phase: optimiser.steps for phase, optimiser in state.optimisers.items()}
        header = {
            "version": state.version,
            "steps": steps,
            "reference_age": state.reference.age if state.reference else 0,
        }
        (fresh / _HEADER).write_text(json.dumps(header, indent=2), encoding="utf-8")

    write_directory(path, fill)


def load(path: Path, state: LearnerState, *, optimiser: Callable[[Phase], Optimiser]) -> Header:
    """Put the checkpoint's weights into `state.model` and its moments into `optimiser(phase)`, or a `ConfigError`."""
    found = existing(path)
    try:
        header = json.loads((found / _HEADER).read_text(encoding="utf-8"))
        moments = load_file(found / _MOMENTS)
        steps: dict[Phase, int] = {phase: int(header["steps"][phase]) for phase in PHASES if phase in header["steps"]}
        version, age = int(header["version"]), int(header.get("reference_age", 0))
        load_weights(found, state.model)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ConfigError(f"{found} is damaged, or holds no learner's checkpoint: {error}") from error
    for phase, count in steps.items():
        prefix = f"{phase}/"
        own = {k.removeprefix(prefix): t for k, t in moments.items() if k.startswith(prefix)}
        optimiser(phase).restore(own, steps=count)
    reference = found / _REFERENCE
    return Header(version=version, reference=reference if reference.is_dir() else None, reference_age=age)
