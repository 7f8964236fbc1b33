"""A policy whose weights, gradients and moments are spread over several ranks (FSDP2).

Each rank holds its slice of every weight. A decoder layer is gathered when it computes, and only then; embeddings, head
and eyes are gathered once for a pass. Gradients are summed over ranks, never averaged: the global denominators are in
the batch's weights.
"""

import copy
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.models.policy import Policy
from cairn.models.saving import load_weights
from cairn.models.scoring import Scores

T = TypeVar("T")

_WITHIN = "within_fsdp"


class ShardedPolicy(Policy):
    """Computes what `Policy` does, with every pass inside of the sharded model's forward.

    All ranks must ask for as many passes, in the same order. Images are looked at anew in each pass, so that a pass and
    its gradients are one whole.
    """

    _sees = False

    @classmethod
    def of(cls, policy: Policy, mesh: DeviceMesh) -> Self:
        """Spread the weights of `policy`, which is used up, over `mesh`."""
        return cls._around(shard(policy.model, mesh), policy)

    @classmethod
    def _around(cls, model: PreTrainedModel, policy: Policy) -> Self:
        with torch.no_grad():  # which tries the model out
            return within(model, lambda: policy.like(cls, model, autocast=policy.autocast))

    def copy(self, *, dtype: torch.dtype | None = None) -> "ShardedPolicy":
        """A policy with slices of its own, without gradient: a reference to stay close to."""
        mesh = cast("DTensor", next(self.model.parameters())).device_mesh
        return ShardedPolicy._around(_twin(self.model, mesh, dtype=dtype), self)

    @contextmanager
    def looking(self, images: Sequence[ImageId]) -> Generator[None]:
        """Note whether any rank sees an image in the passes within."""
        self._sees = bool(images)
        yield

    def scores(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Int32[np.ndarray, " A"]],
        sampled: Sequence[Int64[np.ndarray, " T"]],
        *,
        temperature: float,
    ) -> Scores:
        """How likely the answers' tokens were."""

        def call() -> tuple[Tensor, Tensor, int]:
            found = super(ShardedPolicy, self).scores(prompts, answers, sampled, temperature=temperature)
            chosen = found.chosen + self._touch() if torch.is_grad_enabled() else found.chosen
            return chosen, found.entropy, found.computed

        chosen, entropy, computed = within(self.model, call)
        return Scores(chosen=chosen, entropy=entropy, computed=computed)

    def _touch(self) -> Tensor | float:
        """Nothing, with a gradient of nothing for each weight that not every rank uses in the same pass.

        Ranks exchange the gradients of all weights outside of layers at once, so that a rank whose part shows no image
        must have some for the eyes, too.
        """
        if not self._sees:
            return 0.0
        layers = {id(weight) for layer in _layers(self.model) for weight in layer.parameters()}
        own = [w for w in self.model.parameters() if id(w) not in layers and w.requires_grad]
        return torch.stack([weight.flatten()[0].float() * 0.0 for weight in own]).sum()


def shard(model: PreTrainedModel, mesh: DeviceMesh) -> PreTrainedModel:
    """Spread `model` over `mesh`, in place. Weights are moved to the mesh's device some layers at a time."""
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh)
    setattr(model, _WITHIN, types.MethodType(_call, model))
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, _WITHIN)
    _forget_inner_calls(model)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(enable=True)
    return model


def within(model: PreTrainedModel, call: Callable[[], T]) -> T:
    """The result of `call`, computed as if it were the forward of the sharded `model`."""
    found = cast("Callable[[Callable[[], T]], T]", getattr(model, _WITHIN))(call)
    if not torch.is_grad_enabled():  # no backward pass will come to give back what was gathered
        cast("FSDPModule", model).reshard()
    return found


def whole_weights(model: PreTrainedModel, *, keep: bool) -> Mapping[str, Tensor]:
    """The weights of all ranks by name, on the CPU where `keep`, else none; every rank must ask."""
    found: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        full = whole(weight)
        if keep:
            found[name] = full.cpu()
    return found


def is_sharded(model: PreTrainedModel) -> bool:
    """Whether this process holds a part of the model alone."""
    return isinstance(model, FSDPModule)


def whole(tensor: Tensor) -> Tensor:
    """What all ranks hold of a tensor together; every rank must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_slice(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def placed_like(weight: Tensor, full: Tensor) -> Tensor:
    """A tensor that every rank has, where `weight` is, and this rank's slice of it where it has the weight's shape."""
    if isinstance(weight, DTensor) and not isinstance(full, DTensor) and full.shape == weight.shape:
        return distribute_tensor(full.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)
    return full.to(weight.device)


@torch.no_grad()
def copy_whole(path: Path, model: PreTrainedModel) -> None:
    """Copy the weights of a saved whole model of the same class into `model`, or this rank's slices of them."""
    if not is_sharded(model):
        load_weights(path, model)
        return
    saved = _class(model).from_pretrained(path, dtype=model.dtype)
    whole = saved.state_dict()
    for name, target in model.state_dict().items():  # a tied head has two names and one storage: written twice, alike
        target.copy_(placed_like(target, whole[name]))


def _call(_model: nn.Module, call: Callable[[], T]) -> T:
    return call()


def _forget_inner_calls(model: PreTrainedModel) -> None:
    """Have FSDP see `_WITHIN` alone, not the calls of the model inside of it.

    It would exchange the gradients of what such a call has used as soon as its inputs have theirs; ranks whose parts
    hold other kinds of answers use other weights, and would wait for each other in vain.
    """
    state = cast("FSDPModule", model)._get_fsdp_state()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 - the only way
    for hook in ("_pre_forward_hook_handle", "_post_forward_hook_handle"):
        getattr(state, hook).remove()


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    """Of the decoder: what is gathered by itself; none where a model has no such list."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    layers = getattr(decoder, "layers", None)
    return list(layers) if isinstance(layers, nn.ModuleList) else []


@torch.no_grad()
def _twin(model: PreTrainedModel, mesh: DeviceMesh, *, dtype: torch.dtype | None) -> PreTrainedModel:
    """A sharded model with the same weights, made without ever holding them whole."""
    with torch.device("meta"):
        twin = _class(model)(copy.deepcopy(model.config)).requires_grad_(requires_grad=False)
    twin.to_empty(device="cpu")
    twin.tie_weights()
    for target, buffer in zip(twin.buffers(), model.buffers(), strict=True):
        target.copy_(buffer)
    shard(twin, mesh)
    for target, weight in zip(twin.parameters(), model.parameters(), strict=True):
        own_slice(target).copy_(own_slice(weight))
    return twin if dtype is None else cast("PreTrainedModel", nn.Module.to(twin, dtype=dtype))


def _class(model: PreTrainedModel) -> type[PreTrainedModel]:
    """What it was before FSDP put a class of its own in front."""
    kinds = [c for c in type(model).__mro__ if issubclass(c, PreTrainedModel) and not issubclass(c, FSDPModule)]
    return kinds[0]
