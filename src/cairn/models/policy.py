"""One torch-side view of a causal language model, used by the engine (without gradient) and the learner (with it).

Both go through the same two calls, so that what is trained is what was sampled from:

    prefix = policy.prefill(prompts)             each different prompt once, however many rows ask for it
    logits, prefix = policy.extend(prefix, ids)  a few tokens more for every row

`model` is any `PreTrainedModel` with the causal forward
`model(input_ids, attention_mask, position_ids, past_key_values, use_cache, logits_to_keep, **images)` whose cache can
`batch_select_indices`. Forbidden ids have logit -inf here, and so in the engine and in the learner alike.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32, Int64
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.errors import InvariantError
from cairn.models.batching import buckets, distinct, padded_left, padded_right

ImageFeatures = Callable[[Sequence[ImageId]], Mapping[str, Tensor]]
"""From image ids, in the order of their placeholders, to the model's image arguments (`pixel_values`, …)."""


class RowCache(Protocol):
    """What a model's cache must be able to do; `transformers.Cache` can."""

    def batch_select_indices(self, indices: Tensor, /) -> None:
        """Make row i what row indices[i] was; rows may repeat."""
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


class Policy:
    """A model with its forbidden ids, its way to see images and the precision that it computes in."""

    def __init__(
        self,
        *,
        model: PreTrainedModel,
        forbidden_ids: frozenset[int] = frozenset(),
        image_features: ImageFeatures | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Wrap `model` as it is; with `autocast`, matrix products are computed in that type."""
        self.model = model.eval()  # dropout would make the sampled and the trained distribution differ
        self._image_features = image_features
        self._autocast = autocast
        self._forbidden = torch.tensor(sorted(forbidden_ids), dtype=torch.long, device=model.device)
        self._joinable = image_features is None and self._cache_is_plain()

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.model.device

    def copy(self, *, dtype: torch.dtype | None = None) -> "Policy":
        """A policy with weights of its own, without gradient: for an engine, or as a reference to stay close to.

        With `dtype` all its weights are of that type and it computes in it.
        """
        model = copy.deepcopy(self.model).requires_grad_(requires_grad=False)
        if dtype is not None:
            nn.Module.to(model, dtype=dtype)
        return Policy(
            model=model,
            forbidden_ids=frozenset(self._forbidden.tolist()),
            image_features=self._image_features,
            autocast=self._autocast if dtype is None else None,
        )

    def prefill(self, prompts: Sequence[Prompt]) -> Prefix:
        """Read the prompts: one row each, in order, equal prompts computed once.

        Prompts of very different lengths are read in several passes where that computes fewer tokens.
        """
        unique, rows = distinct(prompts)
        parts = buckets([p.token_ids.shape[0] for p in unique]) if self._joinable else [list(range(len(unique)))]
        prefixes = [self._read([unique[i] for i in part]) for part in parts]
        place = {i: at for at, i in enumerate(i for part in parts for i in part)}
        wanted = [place[row] for row in rows]
        joined = _joined(prefixes)
        return joined if wanted == list(range(len(unique))) else joined.select(wanted)

    def extend(self, prefix: Prefix, ids: Int64[Tensor, "B A"]) -> tuple[Float32[Tensor, "B A V"], Prefix]:
        """Read `ids` after the prefix; the logits after each of them, and the longer prefix."""
        mask = torch.cat([prefix.mask, torch.ones_like(ids)], 1)
        positions = prefix.length[:, None] + torch.arange(ids.shape[1], device=ids.device)
        logits, cache = self._forward(ids, mask, positions, cache=prefix.cache, keep=0, images={})
        length = prefix.length + ids.shape[1]
        return logits, Prefix(cache=cache, mask=mask, length=length, logits=logits[:, -1])

    def answer_logits(
        self, prompts: Sequence[Prompt], answers: Sequence[Int32[np.ndarray, " A"]]
    ) -> Float32[Tensor, "B A V"]:
        """The logits that each answer token was chosen by; rows of shorter answers end in padding.

        Siblings' shared prompts are computed once, forward and backward. Answers are not empty.
        """
        ids = torch.from_numpy(padded_right(answers)).to(self.device)
        with self._precision():  # around both passes, so that weights are rounded once for the two
            prefix = self.prefill(prompts)
            first = prefix.logits[:, None]
            if ids.shape[1] == 1:
                return first
            rest, _ = self.extend(prefix, ids[:, :-1])
        return torch.cat([first, rest], 1)

    def _read(self, prompts: Sequence[Prompt]) -> Prefix:
        ids, mask = (torch.from_numpy(a).to(self.device) for a in padded_left([p.token_ids for p in prompts]))
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        images = self._images([image for p in prompts for image in p.images])
        logits, cache = self._forward(ids, mask, positions, cache=None, keep=1, images=images)
        return Prefix(cache=cache, mask=mask, length=mask.sum(1), logits=logits[:, -1])

    def _images(self, images: Sequence[ImageId]) -> Mapping[str, Tensor]:
        if self._image_features is None:
            if images:
                raise InvariantError(f"the prompt holds {len(images)} images and the policy was given no way to see")
            return {}
        return {k: v.to(self.device) for k, v in self._image_features(images).items()} if images else {}

    def _forward(
        self,
        ids: Tensor,
        mask: Tensor,
        positions: Tensor,
        *,
        cache: RowCache | None,
        keep: int,
        images: Mapping[str, Tensor],
    ) -> tuple[Float[Tensor, "B K V"], RowCache]:
        with self._precision():
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep,
                **images,
            )
        logits = out.logits.float()
        return logits.index_fill(-1, self._forbidden, -torch.inf), out.past_key_values

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self._autocast or torch.bfloat16, enabled=self._autocast is not None)

    @torch.no_grad()
    def _cache_is_plain(self) -> bool:
        """Whether the cache is keys and values by position alone, so that separate passes can be put side by side."""
        one = torch.ones((1, 1), dtype=torch.long, device=self.device)
        out = self.model(input_ids=one, attention_mask=one, use_cache=True, logits_to_keep=1)
        return bool(_plain_layers(out.past_key_values))


def _joined(prefixes: Sequence[Prefix]) -> Prefix:
    """One prefix of all rows in order, the shorter ones padded on the left."""
    if len(prefixes) == 1:
        return prefixes[0]
    width = max(p.mask.shape[1] for p in prefixes)
    pads = [width - p.mask.shape[1] for p in prefixes]
    for layers in zip(*(_plain_layers(p.cache) for p in prefixes), strict=True):
        pairs = list(zip(layers, pads, strict=True))
        keys = torch.cat([functional.pad(_filled(layer.keys), (0, 0, pad, 0)) for layer, pad in pairs])
        values = torch.cat([functional.pad(_filled(layer.values), (0, 0, pad, 0)) for layer, pad in pairs])
        layers[0].keys, layers[0].values = keys, values
    return Prefix(
        cache=prefixes[0].cache,
        mask=torch.cat([functional.pad(p.mask, (pad, 0)) for p, pad in zip(prefixes, pads, strict=True)]),
        length=torch.cat([p.length for p in prefixes]),
        logits=torch.cat([p.logits for p in prefixes]),
    )


def _plain_layers(cache: RowCache) -> list[DynamicLayer]:
    """The layers of a cache that is keys and values by position alone; none where it is anything else."""
    layers = cache.layers if isinstance(cache, DynamicCache) else []
    plain = [layer for layer in layers if type(layer) is DynamicLayer]
    return plain if len(plain) == len(layers) else []


def _select(layers: Sequence[DynamicLayer], index: Tensor) -> None:
    """`batch_select_indices` by `index_select`, whose backward is many times faster on CPU than indexing's."""
    for layer in layers:
        layer.keys = _filled(layer.keys).index_select(0, index)
        layer.values = _filled(layer.values).index_select(0, index)


def _filled(states: Tensor | None) -> Tensor:
    if states is None:
        raise InvariantError("a cache layer is empty after a forward pass")
    return states
