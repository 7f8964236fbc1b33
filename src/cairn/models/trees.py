"""Reading token trees with a model: one pass in which every token attends to its ancestors alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import PreTrainedModel

from cairn.models.attention import BLOCK, TREE_ATTENTION, flex_works, tree_blocks
from cairn.models.tree import Rows, TokenTree, packed, token_trees

_LEAST_WIDTH = 128
"""Rows are at least so wide: many small trees in one row are computed faster than each in a row of its own."""

_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}
_CLOSE_IN_HALF = 3e-2
"""By how much of the largest logit a tree may differ from its sequences read one by one."""


Mask = Literal["blocks", "boolean", "additive"]
"""How a model is told what each place sees: by the tree's blocks (FlexAttention), by a square of truth values, or by
one that it adds to the scores of attention."""

Show = Callable[[Rows], tuple[Tensor, Tensor, Mapping[str, object]]]
"""From rows of trees to ids, positions and the model's image arguments."""


class TreeReader:
    """The hidden states of sequences, with what they begin with in common computed once."""

    def __init__(self, *, model: PreTrainedModel, head: nn.Module, mask: Mask, sharing: bool = True) -> None:
        """`head` makes logits of hidden states.

        Without `sharing` every sequence is read for itself, still packed without padding.
        """
        self.head = head
        self.mask: Mask = mask
        self._model = model
        self._sharing = sharing

    @property
    def vocabulary(self) -> int:
        """How many logits there are for each token."""
        return cast("Tensor", self.head.weight).shape[0]

    def read(
        self,
        sequences: Sequence[Int64[np.ndarray, " L"]],
        wanted: Sequence[Int64[np.ndarray, " T"]],
        *,
        show: Show | None = None,
    ) -> tuple[Float[Tensor, "T H"], int]:
        """The last hidden states at the `wanted` places of each sequence, one after another; and tokens computed.

        Where `sequences` stand for more than ids, `show` makes what the model reads of their rows.
        """
        trees = token_trees(sequences) if self._sharing else _alone(sequences)
        rows = packed(trees, width=self._width(trees))
        device = self._model.device
        ids, positions = (torch.from_numpy(a).to(device) for a in (rows.ids, rows.positions))
        images: Mapping[str, object] = {}
        if show is not None:
            ids, positions, images = show(rows)
        states = self._model.base_model(
            input_ids=ids, attention_mask=self._seen(rows.ends), position_ids=positions, use_cache=False, **images
        ).last_hidden_state
        places = np.concatenate([path[at] for path, at in zip(rows.paths, wanted, strict=True)])
        return states.flatten(0, 1).index_select(0, torch.from_numpy(places).to(device)), sum(len(t) for t in trees)

    def _width(self, trees: Sequence[TokenTree]) -> int:
        """Of the rows: a multiple of the blocks, where there are blocks."""
        if self.mask != "blocks":
            return _LEAST_WIDTH
        return -(-max(len(tree) for tree in trees) // BLOCK) * BLOCK

    def _seen(self, ends: Int64[np.ndarray, "R W"]) -> Tensor | BlockMask:
        if self.mask == "blocks":
            return tree_blocks(ends, self._model.device)
        seen = visible(torch.from_numpy(ends).to(self._model.device))[:, None]
        if self.mask == "boolean":
            return seen
        least = torch.finfo(self._model.dtype).min
        return torch.zeros(seen.shape, dtype=self._model.dtype, device=seen.device).masked_fill_(~seen, least)


def visible(ends: Int64[Tensor, "R W"]) -> Bool[Tensor, "R W W"]:
    """Whether a place (the middle axis) sees another. Padding sees itself alone, so that no softmax is empty."""
    place = torch.arange(ends.shape[1], device=ends.device)
    ancestors = (place[:, None] >= place[None, :]) & (ends[:, None, :] >= place[:, None])
    return ancestors | (place[:, None] == place[None, :])


def _alone(sequences: Sequence[Int64[np.ndarray, " L"]]) -> list[TokenTree]:
    found: list[TokenTree] = []
    for number, sequence in enumerate(sequences):
        places = np.arange(sequence.shape[0])
        ends = np.full_like(places, sequence.shape[0] - 1)
        found.append(TokenTree(ids=sequence, positions=places, ends=ends, sequences=(number,), paths=(places,)))
    return found


@torch.no_grad()
def tree_reader(model: PreTrainedModel, *, sharing: bool = True) -> TreeReader | None:
    """What reads trees with a model; None where it does not compute a tree as it computes each of its sequences.

    That is tried out on three short ones. Recurrent layers do not, nor do windows of attention, which count the places
    of a row.
    """
    head = model.get_output_embeddings()
    if head is None or model.config.get_text_config().to_dict().get("sliding_window"):
        return None
    for mask in _masks(model):
        if _agrees(TreeReader(model=model, head=head, mask=mask), model):
            return TreeReader(model=model, head=head, mask=mask, sharing=sharing)
    return None


def _masks(model: PreTrainedModel) -> tuple[Mask, ...]:
    """What may be tried, the best first."""
    named = getattr(model.config.get_text_config(), "_attn_implementation", None)
    if named == TREE_ATTENTION and flex_works(model.device, model.dtype):
        return "blocks", "boolean", "additive"
    return "boolean", "additive"


def _agrees(reader: TreeReader, model: PreTrainedModel) -> bool:
    rng = np.random.default_rng(0)
    common, *ends = (rng.integers(0, reader.vocabulary, size) for size in (9, 5, 3, 4))
    sequences = [np.concatenate([common, end]) for end in ends]
    everywhere = [np.arange(sequence.shape[0]) for sequence in sequences]
    try:
        together = reader.head(reader.read(sequences, everywhere)[0]).float()
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # it takes no such mask
        return False
    one_by_one = torch.cat([model(input_ids=torch.from_numpy(s)[None].to(model.device)).logits[0] for s in sequences])
    difference = (together - one_by_one.float()).abs().max()
    return bool(difference <= _CLOSE.get(model.dtype, _CLOSE_IN_HALF) * one_by_one.float().abs().max())
