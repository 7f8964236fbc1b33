"""What a learner's checkpoint holds: the model as `from_pretrained` reads it, and beside it safetensors and JSON only.

config.json, model.safetensors, …   the model (and its processor), or
adapter_config.json, …              the adapter alone, and what it was trained on
optimiser.safetensors               moments, by "phase/weight/moment"
learner.json                        version and step counts
reference/                          the policy that a KL term holds on to, where there is one
critic.safetensors                  the weights of a critic, and beside them its moments, where there is one
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file
from safetensors.torch import save_model as save_tensors
from transformers import PreTrainedModel

from cairn.errors import ConfigError
from cairn.models.saving import save_model
from cairn.train.checkpoint import existing, write_directory
from cairn.train.critic import Critic
from cairn.train.optimisation import Optimiser
from cairn.train.reference import Reference
from cairn.train.sharding import copy_whole

Phase = Literal["imitate", "improve"]
"""Each has an optimiser of the policy's of its own."""

PHASES: tuple[Phase, ...] = ("imitate", "improve")

_REFERENCE = "reference"
HEADER = "learner.json"
_MOMENTS = "optimiser.safetensors"
_CRITIC = "critic.safetensors"
_CRITIC_MOMENTS = "critic-optimiser.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """What there is to save."""

    version: int
    model: PreTrainedModel
    reference: Reference | None
    optimisers: Mapping[Phase, Optimiser]
    critic: Critic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint says of itself."""

    version: int
    steps: Mapping[Phase, int]
    reference: Path | None  # where the reference policy is
    reference_age: int  # updates since it was the policy
    critic: "SavedCritic | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCritic:
    """Where a critic's weights and moments are, and how many steps it has taken."""

    folder: Path
    steps: int


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
        if state.critic is not None:
            save_tensors(state.critic.policy.model, str(fresh / _CRITIC))
            save_file(dict(state.critic.optimiser.tensors()), fresh / _CRITIC_MOMENTS)
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


def load_critic(saved: SavedCritic, critic: Critic | None) -> None:
    """Put a saved critic's weights and moments into `critic`; a run without one leaves them where they are."""
    if critic is None:
        return
    try:
        load_model(critic.policy.model, str(saved.folder / _CRITIC))
        moments = load_file(saved.folder / _CRITIC_MOMENTS)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"{saved.folder} holds a damaged critic, or one of another model: {error}") from error
    critic.optimiser.restore(moments, steps=saved.steps)


def write_header(folder: Path, state: LearnerState) -> None:
    """Version and step counts."""
    steps = {phase: optimiser.steps for phase, optimiser in state.optimisers.items()}
    age = state.reference.age if state.reference else 0
    header: dict[str, object] = {"version": state.version, "steps": steps, "reference_age": age}
    if state.critic is not None:
        header["critic"] = state.critic.optimiser.steps
    (folder / HEADER).write_text(json.dumps(header, indent=2), encoding="utf-8")


def header_of(folder: Path) -> Header:
    """What a checkpoint says of itself; raises `OSError`, `ValueError`, `KeyError` or `TypeError` where it does not."""
    told = json.loads((folder / HEADER).read_text(encoding="utf-8"))
    reference = folder / _REFERENCE
    return Header(
        version=int(told["version"]),
        steps={phase: int(told["steps"][phase]) for phase in PHASES if phase in told["steps"]},
        reference=reference if reference.is_dir() else None,
        reference_age=int(told.get("reference_age", 0)),
        critic=SavedCritic(folder=folder, steps=int(told["critic"])) if "critic" in told else None,
    )
