"""The parts of the pixel policy: goal encoder, conditioned convolutions, attention from places to words."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from cairn.models.pixel.configuration import PixelConfig

HEADS = 4


class Attention(nn.Module):
    """Multi-head attention of queries over a masked set, written out: the fused kernel's backward is slower on CPU."""

    def __init__(self, *, width: int, source: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(source, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "B Q D"], over: Float[Tensor, "B K S"], mask: Bool[Tensor, "B K"]
    ) -> Float[Tensor, "B Q D"]:
        """What each query reads; `mask` is True where there is something to read."""
        batch, queries, width = x.shape
        q = self.query(x).view(batch, queries, HEADS, -1).transpose(1, 2)
        k, v = self.key_value(over).view(batch, over.shape[1], 2, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(~mask[:, None, None], -1e4).softmax(-1).to(v.dtype)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, queries, width))


class TextLayer(nn.Module):
    """A pre-norm transformer layer over the words of the goal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width=width, source=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Float[Tensor, "B W D"], mask: Bool[Tensor, "B W"]) -> Float[Tensor, "B W D"]:
        """One round of reading each other."""
        z = self.norm(x)
        x = x + self.attention(z, z, mask)
        return x + self.mlp(x)


class GoalEncoder(nn.Module):
    """Goal words in context. Slot 0 stands for the whole goal; slot i + 1 is word i."""

    def __init__(self, config: PixelConfig) -> None:
        super().__init__()
        self.vocabulary = config.vocabulary
        self.characters = config.characters
        width = config.text_width
        self.table = nn.Embedding(self.vocabulary.verb, width)
        self.place_in_word = nn.Parameter(torch.empty(config.characters + 2, width))
        self.position = nn.Parameter(torch.empty(config.span + 1, width))
        self.typed = nn.Parameter(torch.empty(width))
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.layers = nn.ModuleList([TextLayer(width) for _ in range(config.text_layers)])
        self.norm = nn.LayerNorm(width)

    def forward(
        self, ids: Int[Tensor, "B L"], typed: Float[Tensor, "B W"]
    ) -> tuple[Float[Tensor, "B W1 D"], Bool[Tensor, "B W1"]]:
        """Word states and which slots are filled; `typed` marks the words that past actions typed."""
        layout = self.vocabulary
        is_word = (ids >= layout.word) & (ids < layout.shape)
        slot = is_word.long().cumsum(1)  # words count from 1: slot 0 is the whole goal's
        inside = (ids >= layout.word) & (ids < layout.verb) & (slot >= 1) & (slot <= layout.span)
        at = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        offset = (at - torch.where(is_word, at, 0).cummax(1).values).clamp(0, self.characters + 1)
        parts = self.table(ids.clamp(max=layout.verb - 1)) * self.place_in_word[offset] * inside[..., None]
        slots = parts.new_zeros(ids.shape[0], layout.span + 1, parts.shape[-1])
        index = torch.where(inside, slot, 0)[..., None].expand_as(parts)
        slots = slots.scatter_add(1, index, parts)
        slots = slots + self.mix(slots) + self.position
        slots = slots + functional.pad(typed, (1, 0))[..., None].to(slots.dtype) * self.typed
        count = slot[:, -1:].clamp(max=layout.span)
        mask = torch.arange(layout.span + 1, device=ids.device)[None] <= count
        for layer in self.layers:
            slots = layer(slots, mask)
        return self.norm(slots), mask


class Block(nn.Module):
    """A residual pair of dense 3x3 convolutions, conditioned on the goal, with a global exchange.

    With `reads`, every place first reads the words of the goal, so that it can tell whether one of them names it.
    """

    def __init__(self, *, width: int, text_width: int, reads: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.everywhere = nn.Linear(width, width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.read_norm = nn.LayerNorm(width) if reads else None
        self.read = Attention(width=width, source=text_width) if reads else None

    def forward(
        self,
        x: Float[Tensor, "B H W D"],
        film: Float[Tensor, "B 2 D"],
        words: Float[Tensor, "B K S"],
        mask: Bool[Tensor, "B K"],
    ) -> Float[Tensor, "B H W D"]:
        """The map after one block. Channels come last: permuted, that is the convolutions' fast layout."""
        if self.read is not None and self.read_norm is not None:
            flat = self.read_norm(x).flatten(1, 2)
            x = x + self.read(flat, words, mask).view_as(x)
        z = self.norm(x) * (1 + film[:, 0, None, None]) + film[:, 1, None, None]
        z = z + self.everywhere(z.amax((1, 2)))[:, None, None]
        z = self.second(functional.relu(self.first(z.permute(0, 3, 1, 2))))
        return x + z.permute(0, 2, 3, 1)
