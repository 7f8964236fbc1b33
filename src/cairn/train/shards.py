"""A learner's checkpoint whose weights and moments every rank wrote a part of; any number of ranks can read it.

shards/                             weights, moments and the reference's weights, by torch.distributed.checkpoint
config.json, model.safetensors, …   the whole model once more, as `from_pretrained` reads it (and its processor)
learner.json                        version and step counts

The index of the shards is a pickle of torch's: load your own checkpoints, or the whole model of other people's.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from cairn.errors import ConfigError
from cairn.train.checkpoint import existing, fresh_directory, write_directory
from cairn.train.optimisation import Optimiser
from cairn.train.ranks import Group
from cairn.train.reference import Reference
from cairn.train.sharding import copy_whole, is_sharded, whole_weights
from cairn.train.state import Header, LearnerState, Phase, header_of, load, write_header

_SHARDS = "shards"
_MODEL, _REFERENCE, _MOMENTS = "model", "reference", "moments"


def held(path: Path) -> bool:
    """Whether the checkpoint is one of shards."""
    return (existing(path) / _SHARDS).is_dir()


def save_shards(
    path: Path, state: LearnerState, *, group: Group, save_processor: Callable[[Path], None] | None
) -> None:
    """Write `state` to the directory `path`, all of it or nothing; every rank must ask, and see the same disk."""
    tensors = {f"{_MODEL}/{n}": t for n, t in _weights(state.model).items()}
    if state.reference is not None:
        tensors |= {f"{_REFERENCE}/{n}": t for n, t in _weights(state.reference.model).items()}
    for phase, optimiser in state.optimisers.items():
        tensors |= {f"{_MOMENTS}/{phase}/{n}": t for n, t in optimiser.tensors()}

    def fill(fresh: Path) -> None:
        state_dict_saver.save(tensors, checkpoint_id=fresh / _SHARDS)
        whole = whole_weights(state.model, keep=group.rank == 0)
        if group.rank == 0:
            state.model.save_pretrained(fresh, state_dict=dict(whole))
            if save_processor is not None:
                save_processor(fresh)
            write_header(fresh, state)

    if group.rank == 0:
        write_directory(path, fill)
    else:
        fill(fresh_directory(path))
    group.meet()  # nobody goes on before all of it is there


def load_shards(path: Path, state: LearnerState, *, optimiser: Callable[[Phase], Optimiser]) -> Header:
    """Put what any number of ranks saved into this learner's slices, or into a learner that has all of it."""
    found = existing(path)
    if not held(path):
        return load(path, state, optimiser=optimiser)
    try:
        header = header_of(found)
        known = FileSystemReader(found / _SHARDS).read_metadata().state_dict_metadata
        weights = _weights(state.model)
        targets = {f"{_MODEL}/{n}": t for n, t in weights.items()}
        moments = {
            name: _room(stored, weights.get(name.split("/")[2]))
            for name, stored in known.items()
            if name.startswith(f"{_MOMENTS}/") and isinstance(stored, TensorStorageMetadata)
        }
        _read(found, targets | moments)
    except (OSError, ValueError, KeyError, TypeError, CheckpointException) as error:
        raise ConfigError(f"{found} is damaged, or holds no learner's checkpoint: {error}") from error
    for phase, steps in header.steps.items():
        prefix = f"{_MOMENTS}/{phase}/"
        own = {n.removeprefix(prefix): t for n, t in moments.items() if n.startswith(prefix)}
        optimiser(phase).restore(own, steps=steps)
    has_reference = any(name.startswith(f"{_REFERENCE}/") for name in known)
    return replace(header, reference=found if has_reference else None)


def load_reference(path: Path, reference: Reference, *, age: int) -> None:
    """Make `reference` what `path`, of a header, holds, whoever wrote it."""
    if (path / _SHARDS).is_dir():
        _read(path, {f"{_REFERENCE}/{n}": t for n, t in _weights(reference.model).items()})
        reference.age = age
    elif is_sharded(reference.model):
        copy_whole(path, reference.model)
        reference.age = age
    else:
        reference.load(path, age=age)


def _read(found: Path, targets: dict[str, Tensor]) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process alone is meant
        state_dict_loader.load(targets, checkpoint_id=found / _SHARDS, no_dist=not dist.is_initialized())


def _room(stored: TensorStorageMetadata, weight: Tensor | None) -> Tensor:
    """A place for a stored tensor, spread like the weight that it belongs to where it has its shape."""
    if isinstance(weight, DTensor) and stored.size == weight.shape:
        return torch.zeros_like(weight, dtype=stored.properties.dtype, requires_grad=False)
    return torch.zeros(stored.size, dtype=stored.properties.dtype, device=None if weight is None else weight.device)


def _weights(model: PreTrainedModel) -> Mapping[str, Tensor]:
    """Weights and kept buffers, those with two names once."""
    kept = model.state_dict()
    named = {n: p.detach() for n, p in model.named_parameters()}
    return named | {n: b for n, b in model.named_buffers() if n in kept}
