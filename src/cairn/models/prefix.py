"""What a policy has read so far: rows of cached states that can be chosen, kept and put side by side."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, cast, runtime_checkable

import torch
from jaxtyping import Float32, Int64
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from cairn.errors import InvariantError


class RowCache(Protocol):
    """What a model's cache must be able to do; `transformers.Cache` can."""

    def batch_select_indices(self, indices: Tensor, /) -> None:
        """Make row i what row indices[i] was; rows may repeat."""
        ...


@runtime_checkable
class JoinableCache(RowCache, Protocol):
    """A cache of which several can become one. Changes replace its tensors and never write into them."""

    def shared(self) -> Self:
        """Another cache of the same rows, to be changed apart from this one."""
        ...

    def append(self, others: Sequence[Self], /) -> None:
        """Take in the rows of `others` after its own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """What the policy has read so far, one row for each answer. `select` and `extend` use up the object."""

    cache: RowCache
    mask: Int64[Tensor, "B P"]
    length: Int64[Tensor, " B"]  # tokens read, padding not counted: the position of the next
    logits: Float32[Tensor, "B V"]  # of the next token

    def select(self, rows: Sequence[int]) -> "Prefix":
        """Row i becomes what row rows[i] was; rows may repeat or be left out."""
        index = torch.tensor(rows, device=self.mask.device)
        layers = _plain_layers(self.cache)
        if layers:
            _select(layers, index)
        else:
            self.cache.batch_select_indices(index)
        return Prefix(
            cache=self.cache,
            mask=self.mask[index],
            length=self.length[index],
            logits=self.logits.index_select(0, index),
        )

    def shared(self) -> "Prefix":
        """The same, to be used up apart from this one. The cache must be `joinable`."""
        cache = _plain_copy(self.cache) if _plain_layers(self.cache) else cast("JoinableCache", self.cache).shared()
        return Prefix(cache=cache, mask=self.mask, length=self.length, logits=self.logits)


def joinable(cache: RowCache) -> bool:
    """Whether prefixes with such caches can be shared and joined."""
    return bool(_plain_layers(cache)) or isinstance(cache, JoinableCache)


def join(prefixes: Sequence[Prefix]) -> Prefix:
    """One prefix of all rows in order, the shorter ones padded on the left. Uses up the prefixes."""
    if len(prefixes) == 1:
        return prefixes[0]
    width = max(p.mask.shape[1] for p in prefixes)
    pads = [width - p.mask.shape[1] for p in prefixes]
    first, *others = [p.cache for p in prefixes]
    if _plain_layers(first):
        _append(prefixes, pads)
    else:
        cast("JoinableCache", first).append(cast("Sequence[JoinableCache]", others))
    return Prefix(
        cache=first,
        mask=torch.cat([functional.pad(p.mask, (pad, 0)) for p, pad in zip(prefixes, pads, strict=True)]),
        length=torch.cat([p.length for p in prefixes]),
        logits=torch.cat([p.logits for p in prefixes]),
    )


def _append(prefixes: Sequence[Prefix], pads: Sequence[int]) -> None:
    for layers in zip(*(_plain_layers(p.cache) for p in prefixes), strict=True):
        pairs = list(zip(layers, pads, strict=True))
        keys = torch.cat([functional.pad(_filled(layer.keys), (0, 0, pad, 0)) for layer, pad in pairs])
        values = torch.cat([functional.pad(_filled(layer.values), (0, 0, pad, 0)) for layer, pad in pairs])
        layers[0].keys, layers[0].values = keys, values


def _plain_layers(cache: RowCache) -> list[DynamicLayer]:
    """The layers of a cache that is keys and values by position alone; none where it is anything else."""
    layers = cache.layers if isinstance(cache, DynamicCache) else []
    plain = [layer for layer in layers if type(layer) is DynamicLayer]
    return plain if len(plain) == len(layers) else []


def _plain_copy(cache: RowCache) -> RowCache:
    copied = copy.copy(cast("DynamicCache", cache))
    copied.layers = [copy.copy(layer) for layer in copied.layers]
    return copied


def _select(layers: Sequence[DynamicLayer], index: Tensor) -> None:
    """`batch_select_indices` by `index_select`, whose backward is many times faster on CPU than indexing's."""
    for layer in layers:
        layer.keys = _filled(layer.keys).index_select(0, index)
        layer.values = _filled(layer.values).index_select(0, index)


def _filled(states: Tensor | None) -> Tensor:
    if states is None:
        raise InvariantError("a cache layer is empty after a forward pass")
    return states
