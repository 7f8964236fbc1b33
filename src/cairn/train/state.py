"""What a learner's checkpoint holds: the model as `from_pretrained` reads it, and beside it safetensors and JSON only.

config.json, model.safetensors, …   the model (and its processor)
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
from cairn.train.checkpoint import existing, write_directory
from cairn.train.optimisation import Optimiser
from cairn.train.sharding import copy_whole

Phase = Literal["imitate", "improve"]
PHASES: tuple[Phase, ...] = ("imitate", "improve")

_REFERENCE = "reference"
HEADER = "learner.json"
_MOMENTS = "optimiser.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """What there is to save."""

    version: int
    model: PreTrainedModel
    reference: PreTrainedModel | None
    optimisers: Mapping[Phase, Optimiser]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint says of itself."""

    version: int
    steps: Mapping[Phase, int]
    reference: Path | None  # where the reference policy is


def save(path: Path, state: LearnerState, *, save_processor: Callable[[Path], None] | None) -> None:
    """Write `state` to the directory `path`, all of it or nothing."""

    def fill(fresh: Path) -> None:
        state.model.save_pretrained(fresh)
        if save_processor is not None:
            save_processor(fresh)
        if state.reference is not None:
            state.reference.save_pretrained(fresh / _REFERENCE)
        moments = {f"{phase}/{n}": t for phase, o in state.optimisers.items() for n, t in o.tensors()}
        save_file(moments, fresh / _MOMENTS)
        write_header(fresh, state)

    write_directory(path, fill)


def load(path: Path, state: LearnerState, *, optimiser: Callable[[Phase], Optimiser]) -> Header:
    """Put the checkpoint's weights into `state.model` and its moments into `optimiser(phase)`, or a `ConfigError`."""
    found = existing(path)
    try:
        header = header_of(found)
        moments = load_file(found / _MOMENTS)
        copy_whole(found, state.model)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ConfigError(f"{found} is damaged, or holds no learner's checkpoint: {error}") from error
    for phase, count in header.steps.items():
        prefix = f"{phase}/"
        own = {k.removeprefix(prefix): t for k, t in moments.items() if k.startswith(prefix)}
        optimiser(phase).restore(own, steps=count)
    return header


def write_header(folder: Path, state: LearnerState) -> None:
    """Version and step counts."""
    steps = {phase: optimiser.steps for phase, optimiser in state.optimisers.items()}
    header = {"version": state.version, "steps": steps}
    (folder / HEADER).write_text(json.dumps(header, indent=2), encoding="utf-8")


def header_of(folder: Path) -> Header:
    """What a checkpoint says of itself; raises `OSError`, `ValueError`, `KeyError` or `TypeError` where it does not."""
    told = json.loads((folder / HEADER).read_text(encoding="utf-8"))
    reference = folder / _REFERENCE
    return Header(
        version=int(told["version"]),
        steps={phase: int(told["steps"][phase]) for phase in PHASES if phase in told["steps"]},
        reference=reference if reference.is_dir() else None,
    )
