"""What a learner's checkpoint holds: the model as `from_pretrained` reads it, and beside it safetensors and JSON only.

config.json, model.safetensors, …   the model (and its processor)
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

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from transformers import PreTrainedModel

from cairn.errors import ConfigError
from cairn.train.checkpoint import existing, write_directory
from cairn.train.critic import Critic
from cairn.train.optimisation import Optimiser

Phase = Literal["imitate", "improve"]
"""Each has an optimiser of the policy's of its own."""

PHASES: tuple[Phase, ...] = ("imitate", "improve")

_REFERENCE = "reference"
_HEADER = "learner.json"
_MOMENTS = "optimiser.safetensors"
_CRITIC = "critic.safetensors"
_CRITIC_MOMENTS = "critic-optimiser.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """What there is to save."""

    version: int
    model: PreTrainedModel
    reference: PreTrainedModel | None
    optimisers: Mapping[Phase, Optimiser]
    critic: Critic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint says of itself."""

    version: int
    reference: Path | None  # where the reference policy is
    critic: "SavedCritic | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCritic:
    """Where a critic's weights and moments are, and how many steps it has taken."""

    folder: Path
    steps: int


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
        steps = {phase: optimiser.steps for phase, optimiser in state.optimisers.items()}
        header: dict[str, object] = {"version": state.version, "steps": steps}
        if state.critic is not None:
            save_model(state.critic.policy.model, str(fresh / _CRITIC))
            save_file(dict(state.critic.optimiser.tensors()), fresh / _CRITIC_MOMENTS)
            header["critic"] = state.critic.optimiser.steps
        (fresh / _HEADER).write_text(json.dumps(header, indent=2), encoding="utf-8")

    write_directory(path, fill)


def load(path: Path, state: LearnerState, *, optimiser: Callable[[Phase], Optimiser]) -> Header:
    """Put the checkpoint's weights into `state.model` and its moments into `optimiser(phase)`, or a `ConfigError`."""
    found = existing(path)
    try:
        header = json.loads((found / _HEADER).read_text(encoding="utf-8"))
        moments = load_file(found / _MOMENTS)
        steps: dict[Phase, int] = {phase: int(header["steps"][phase]) for phase in PHASES if phase in header["steps"]}
        version = int(header["version"])
        critic = SavedCritic(folder=found, steps=int(header["critic"])) if "critic" in header else None
        load_weights(found, state.model)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ConfigError(f"{found} is damaged, or holds no learner's checkpoint: {error}") from error
    for phase, count in steps.items():
        prefix = f"{phase}/"
        own = {k.removeprefix(prefix): t for k, t in moments.items() if k.startswith(prefix)}
        optimiser(phase).restore(own, steps=count)
    reference = found / _REFERENCE
    return Header(version=version, reference=reference if reference.is_dir() else None, critic=critic)


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


@torch.no_grad()
def load_weights(path: Path, model: PreTrainedModel) -> None:
    """Copy the weights of a saved model of the same class into `model`."""
    saved = type(model).from_pretrained(path, dtype=model.dtype)
    model.load_state_dict(saved.state_dict())
