"""How weights move: AdamW under a learning-rate schedule that is a pure function of the step."""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from math import cos, isfinite, pi
from typing import Literal

import torch
from torch import Tensor, nn

from cairn.errors import InvariantError
from cairn.train.compact import Compact, CompactAdamW, WeightGroup
from cairn.train.sharding import placed_like, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisation:
    """AdamW with linear warm-up, then a constant rate, or one that falls to `final_share` of it within `steps`."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0  # of matrices; never of biases and norms
    warmup_steps: int = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    steps: int = 0  # from the first one to the end of the fall, warm-up included
    final_share: float = 0.1
    max_grad_norm: float = 1.0
    state: Literal["float32"] | Compact = "float32"

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, …; with a warm-up of n steps, step 0 has 1/n of the full rate."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return self.learning_rate
        done = min(1.0, (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps))
        left = (1 + cos(pi * done)) / 2 if self.schedule == "cosine" else 1 - done
        return self.learning_rate * (self.final_share + (1 - self.final_share) * left)


class Optimiser:
    """AdamW over a model's weights, with its step count; its whole state is `tensors()` and `steps`."""

    def __init__(self, *, model: nn.Module, optimisation: Optimisation) -> None:
        """Moments are made by the first step."""
        self._optimisation = optimisation
        self._weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
        matrices = [p for p in self._weights.values() if p.ndim >= 2]
        vectors = [p for p in self._weights.values() if p.ndim < 2]
        self._adamw = _adamw(
            [WeightGroup(weights=matrices, decay=optimisation.weight_decay), WeightGroup(weights=vectors)],
            optimisation,
            model,
        )
        self.steps = 0

    def step(self) -> tuple[float, float]:
        """Apply the gathered gradients and clear them; the gradient's norm before clipping, and the rate used."""
        found = nn.utils.clip_grad_norm_(self._weights.values(), self._optimisation.max_grad_norm)
        norm = float(whole(found))  # of all ranks' slices
        if not isfinite(norm):
            raise InvariantError(f"the gradient's norm is {norm}: a log-probability or a credit is not finite")
        rate = self._optimisation.rate(self.steps)
        self._adamw.step(rate)
        self.steps += 1
        return norm, rate

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """AdamW's moments and step counts, by "weight/moment"."""
        for name, weight in self._weights.items():
            for moment, tensor in self._adamw.state.get(weight, {}).items():
                yield f"{name}/{moment}", tensor.contiguous()

    def restore(self, tensors: dict[str, Tensor], *, steps: int) -> None:
        """Take over what `tensors` gave."""
        self.steps = steps
        for name, weight in self._weights.items():
            prefix = f"{name}/"
            own = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
            state = {k: placed_like(weight, t) for k, t in own.items()}
            if state:
                self._adamw.state[weight] = state


class _FullAdamW:
    """torch's own, which keeps moments in float32."""

    def __init__(self, groups: Sequence[WeightGroup], *, betas: tuple[float, float]) -> None:
        own = [{"params": list(group.weights), "weight_decay": group.decay} for group in groups]
        self._adamw = torch.optim.AdamW(own, betas=betas, fused=True)

    @property
    def state(self) -> MutableMapping[Tensor, dict[str, Tensor]]:
        return self._adamw.state

    def step(self, rate: float) -> None:
        for group in self._adamw.param_groups:
            group["lr"] = rate
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)


def _adamw(groups: Sequence[WeightGroup], optimisation: Optimisation, model: nn.Module) -> _FullAdamW | CompactAdamW:
    """Moments of embeddings stay float32 beside codes: rows that are rarely used should share no scale with others."""
    if optimisation.state == "float32":
        return _FullAdamW(groups, betas=optimisation.betas)
    rare = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)] if optimisation.state == "8bit" else []
    return CompactAdamW(groups, betas=optimisation.betas, kind=optimisation.state, in_full=rare)
