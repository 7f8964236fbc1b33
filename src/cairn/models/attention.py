"""Attention in token trees: on a GPU by FlexAttention, from a description of blocks instead of a square mask.

A model that is loaded with `TREE_ATTENTION` computes trees so, and anything else as transformers' `sdpa` does.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from collections.abc import Callable

TREE_ATTENTION = "cairn_tree"
"""The name of this attention among those of transformers."""

BLOCK = 128
"""Places that a kernel looks at together. Rows of trees are as wide as whole blocks."""

_CLOSE = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 1e-2}
_HEADS, _SIZE = 4, 64


def register_tree_attention() -> str:
    """Make transformers know it; the name to load a model with."""
    AttentionInterface.register(TREE_ATTENTION, _attend)
    AttentionMaskInterface.register(TREE_ATTENTION, sdpa_mask)
    return TREE_ATTENTION


def tree_blocks(ends: Int64[np.ndarray, "R W"], device: torch.device) -> BlockMask:
    """Which blocks of a row see which: none of it, all of it, or what the tree says place by place.

    `ends` are the places of the last tokens of all tokens' subtrees, -1 at padding, which sees itself alone. W is a
    multiple of `BLOCK`. A block that is said to be looked at place by place may turn out to hold nothing to see.
    """
    rows, width = ends.shape
    count = width // BLOCK
    blocks = ends.reshape(rows, count, BLOCK)
    first = np.arange(count) * BLOCK
    here, there = np.arange(count)[:, None], np.arange(count)[None, :]
    some = ((there < here) & (blocks.max(-1)[:, None, :] >= first[None, :, None])) | (there == here)
    whole = (there < here) & (blocks.min(-1)[:, None, :] >= first[None, :, None] + BLOCK - 1)
    partial = _listed(some & ~whole, device)
    full = _listed(whole, device)
    last = torch.from_numpy(ends).to(device)

    def sees(row: Tensor, _head: Tensor, place: Tensor, other: Tensor) -> Tensor:
        return ((place >= other) & (last[row, other] >= place)) | (place == other)

    return BlockMask.from_kv_blocks(*partial, *full, BLOCK_SIZE=BLOCK, mask_mod=sees)


@cache
def flex_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether FlexAttention computes a small tree here as masked attention does, forward and backward.

    It is compiled for this; a GPU that it cannot be compiled for, or a torch without a compiler, says so.
    """
    if device.type != "cuda":
        return False
    ends = np.full((1, 3 * BLOCK), 3 * BLOCK - 1, np.int64)
    ends[0, BLOCK : 2 * BLOCK - 20] = 2 * BLOCK - 21  # one branch, then another
    random = torch.Generator(device).manual_seed(0)
    shape = (1, _HEADS, 3 * BLOCK, _SIZE)
    states = [torch.randn(shape, generator=random, device=device, dtype=dtype) for _ in range(3)]
    try:
        ours = _with_gradients(states, lambda q, k, v: flex(q, k, v, tree_blocks(ends, device), None))
    except (RuntimeError, ImportError, AssertionError, AttributeError, TypeError, ValueError):  # of a compiler
        return False
    seen = dense(tree_blocks(ends, device))
    theirs = _with_gradients(states, lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=seen))
    close = _CLOSE.get(dtype, 3e-2)
    return all(bool((a - b).abs().max() <= close * b.abs().max()) for a, b in zip(ours, theirs, strict=True))


def flex(
    query: Float[Tensor, "R H W D"],
    key: Float[Tensor, "R K W D"],
    value: Float[Tensor, "R K W D"],
    blocks: BlockMask,
    scale: float | None,
) -> Float[Tensor, "R H W D"]:
    """FlexAttention: compiled on a GPU, by plain torch elsewhere, where it has no gradient."""
    own = _compiled() if query.device.type == "cuda" else flex_attention
    shared = query.shape[1] != key.shape[1]
    return cast("Tensor", own(query, key, value, block_mask=blocks, scale=scale, enable_gqa=shared))


def dense(blocks: BlockMask) -> Bool[Tensor, "R 1 W W"]:
    """The same as a square of places."""
    rows, _, width, _ = blocks.shape
    row, place = torch.arange(rows), torch.arange(width)
    device = blocks.kv_num_blocks.device
    row, place, other = (
        at.to(device) for at in (row[:, None, None, None], place[None, None, :, None], place[None, None, None, :])
    )
    return blocks.mask_mod(row, torch.zeros_like(row), place, other)


def _attend(  # noqa: PLR0913 - as transformers calls it
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,  # noqa: ANN401 - whatever it passes on
) -> tuple[Tensor, None]:
    """What transformers' attention functions are."""
    if isinstance(attention_mask, BlockMask):
        return flex(query, key, value, attention_mask, scaling).transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more)


@cache
def _compiled() -> "Callable[..., Tensor | tuple[Tensor, ...]]":
    """Batches hardly ever have a shape twice, so that it is compiled for all of them at once."""
    return torch.compile(flex_attention, dynamic=True)


def _listed(chosen: Bool[np.ndarray, "R Q K"], device: torch.device) -> tuple[Tensor, Tensor]:
    """How many of each line are chosen, and which: those first."""
    order = np.argsort(~chosen, axis=-1, kind="stable").astype(np.int32)
    counts = chosen.sum(-1).astype(np.int32)
    return torch.from_numpy(counts[:, None]).to(device), torch.from_numpy(order[:, None]).to(device)


def _with_gradients(states: list[Tensor], attend: "Callable[[Tensor, Tensor, Tensor], Tensor]") -> list[Tensor]:
    query, key, value = (state.detach().clone().requires_grad_() for state in states)
    found = attend(query, key, value)
    (found.float() * torch.linspace(-1, 1, found.numel(), device=found.device).reshape(found.shape)).sum().backward()
    return [found.detach(), *(cast("Tensor", state.grad) for state in (query, key, value))]
