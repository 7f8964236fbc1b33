"""AdamW whose two moments take two bytes of each weight, or one: kept in bfloat16, or in blocks of 8-bit codes.

A step reads the moments of a piece of a weight, computes in float32 and rounds them back by chance, the likelier to
what is nearer: rounding to the nearest would lose a change that is smaller than half a code's distance, step for step.
Chance comes from the number of the step, so that a resumed run rounds alike. Codes are those of dynamic trees (8-bit
optimisers, arXiv:2110.02861): fine near a block's largest value, and reaching seven powers of ten below.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn

Compact = Literal["bfloat16", "8bit"]

BLOCK = 256
"""Weights that share a scale."""
_PIECE = 2**24
"""Weights that are computed at once: a multiple of the block."""
_SMALLEST = 4096
"""Weights with fewer values keep float32, as it costs nothing."""
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Weights that decay alike."""

    weights: Sequence[nn.Parameter]
    decay: float = 0.0


class CompactAdamW:
    """As torch's AdamW, with the same names in `state`; `in_full` are weights whose moments stay float32."""

    def __init__(
        self,
        groups: Sequence[WeightGroup],
        *,
        betas: tuple[float, float],
        kind: Compact,
        in_full: Iterable[Tensor] = (),
    ) -> None:
        """Moments are made by the first step."""
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._weights = [(weight, group.decay) for group in groups for weight in group.weights]
        self._betas = betas
        self._kind: Compact = kind
        self._full = {id(weight) for weight in in_full}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move all weights that have a gradient, and clear it."""
        for number, (weight, decay) in enumerate(self._weights):
            if weight.grad is None:
                continue
            if not self.state.get(weight):
                self.state[weight] = self._nothing(weight)
            steps = self.state[weight]["step"].add_(1)
            chance = torch.Generator(weight.device).manual_seed(int(steps) * len(self._weights) + number)
            self._move(weight, rate=rate, decay=decay, chance=chance)
            weight.grad = None

    def _nothing(self, weight: Tensor) -> dict[str, Tensor]:
        state = {"step": torch.zeros((), dtype=torch.float32)}
        size = weight.numel()
        for moment in _MOMENTS:
            if id(weight) in self._full or size < _SMALLEST:
                state[moment] = torch.zeros(size, device=weight.device)
            elif self._kind == "bfloat16":
                state[moment] = torch.zeros(size, dtype=torch.bfloat16, device=weight.device)
            else:
                zero = int(torch.searchsorted(codes(signed=moment == "exp_avg"), 0.0))
                state[moment] = torch.full((size,), zero, dtype=torch.uint8, device=weight.device)
                state[f"{moment}_scale"] = torch.zeros(-(-size // BLOCK), device=weight.device)
        return state

    def _move(self, weight: nn.Parameter, *, rate: float, decay: float, chance: torch.Generator) -> None:
        state, slopes = self.state[weight], weight.grad
        if slopes is None:
            return
        steps = int(state["step"])
        values, slopes = weight.data.view(-1), slopes.reshape(-1)
        low, high = self._betas
        for begin in range(0, values.shape[0], _PIECE):
            piece = slice(begin, begin + _PIECE)
            slope = slopes[piece].float()
            mean = _read(state, "exp_avg", piece).lerp_(slope, 1 - low)
            square = _read(state, "exp_avg_sq", piece).mul_(high).addcmul_(slope, slope, value=1 - high)
            spread = (square / (1 - high**steps)).sqrt_().add_(1e-8)
            own = values[piece]
            own.mul_(1 - rate * decay).addcdiv_(mean, spread, value=-rate / (1 - low**steps))
            _write(state, "exp_avg", piece, mean, chance)
            _write(state, "exp_avg_sq", piece, square, chance)


def _read(state: dict[str, Tensor], moment: str, piece: slice) -> Tensor:
    """A copy in float32."""
    kept = state[moment][piece]
    if kept.dtype is not torch.uint8:
        return kept.to(torch.float32, copy=True)
    return decoded(kept, state[f"{moment}_scale"][_blocks(piece)], signed=moment == "exp_avg")


def _write(state: dict[str, Tensor], moment: str, piece: slice, values: Tensor, chance: torch.Generator) -> None:
    kept = state[moment][piece]
    if kept.dtype is torch.float32:
        kept.copy_(values)
    elif kept.dtype is torch.bfloat16:
        kept.copy_(rounded(values, chance))
    else:
        ids, scales = encoded(values, chance, signed=moment == "exp_avg")
        kept.copy_(ids)
        state[f"{moment}_scale"][_blocks(piece)] = scales


def _blocks(piece: slice) -> slice:
    return slice(piece.start // BLOCK, -(-piece.stop // BLOCK))


# ── rounding ──────────────────────────────────────────────────────────────────


def rounded(values: Tensor, chance: torch.Generator) -> Tensor:
    """Float32 as bfloat16, whose expectation it is: noise is added below the bits that stay."""
    noise = torch.randint(0, 1 << 16, values.shape, dtype=torch.int32, device=values.device, generator=chance)
    return (values.view(torch.int32) + noise).bitwise_and_(-(1 << 16)).view(torch.float32).bfloat16()


@cache
def codes(*, signed: bool) -> Tensor:
    """What the 256 codes stand for, as shares of a block's largest value; ascending.

    z leading zeros mean a power of ten, 10^-z, and the bits that are left a place between a tenth of it and all of it.
    """
    bits = 6 if signed else 7
    positive = [
        10.0**-zeros * (0.1 + 0.9 * (place + 0.5) / 2 ** (bits - zeros))
        for zeros in range(7)
        for place in range(2 ** (bits - zeros))
    ]
    found = [0.0, 1.0, *positive, *([-value for value in positive] if signed else [])]
    return torch.tensor(sorted(found), dtype=torch.float32)


def encoded(values: Tensor, chance: torch.Generator, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Codes [N] and the scales of their blocks.

    Without signs only 0 has the code of 0: a square that vanished while its mean stays would let a weight jump.
    """
    size = values.shape[0]
    padded = nn.functional.pad(values, (0, -size % BLOCK)).view(-1, BLOCK)
    scales = padded.abs().amax(1)
    shares = (padded / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).view(-1)[:size].contiguous()
    known = codes(signed=signed).to(values.device)
    above = torch.bucketize(shares, known, out_int32=True).clamp_(1, known.shape[0] - 1)
    low, high = known[above - 1], known[above]
    up = torch.rand(shares.shape, device=values.device, generator=chance) < (shares - low) / (high - low)
    ids = above - 1 + up.int()
    if not signed:
        ids = torch.where(shares > 0, ids.clamp(min=1), 0)
    return ids.to(torch.uint8), scales


def decoded(ids: Tensor, scales: Tensor, *, signed: bool) -> Tensor:
    """What `encoded` gave, as float32 [N]."""
    shares = codes(signed=signed).to(ids.device)[ids.int()]
    return shares.mul_(scales.repeat_interleave(BLOCK)[: ids.shape[0]])
