"""Which micro-batches a rank computes, and what all of them have found together."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from cairn.data.sample import Appraisal, CreditedSample
from cairn.models.policy import Policy
from cairn.train.examples import Example
from cairn.train.ranks import Ranks, shares


def own_parts(policy: Policy, examples: Sequence[Example], ranks: Ranks, *, max_tokens: int) -> list[list[Example]]:
    """Those of this rank: as many on every rank, with idle ones where they do not come out even."""
    prompts, answers, count = [e.prompt for e in examples], [e.answer for e in examples], ranks.count
    parts = policy.parts(prompts, answers, max_tokens=max_tokens)
    if count == 1:
        return [[examples[i] for i in part] for part in parts]
    sizes = [p.token_ids.shape[0] + a.shape[0] for p, a in zip(prompts, answers, strict=True)]
    limit = min(max_tokens, sum(sizes))
    while len(parts) < min(count, len(examples)) and limit > 1:  # work for everyone
        limit //= 2
        parts = policy.parts(prompts, answers, max_tokens=limit)
    every = shares(parts, sizes, count=count)
    own = [[examples[i] for i in part] for part in every[ranks.rank]]
    shortest = examples[int(np.argmin(sizes))]
    return own + [[shortest.as_idle()]] * (len(every[0]) - len(own))


def from_all(found: Mapping[int, Tensor], examples: Sequence[Example], ranks: Ranks) -> dict[int, Tensor]:
    """What any rank has found of each of the examples, by their indices; as many numbers of each on every rank."""
    if ranks.count == 1:
        return dict(found)
    known = [e.index in found for e in examples]
    sizes = torch.tensor([float(found[e.index].shape[0]) if e.index in found else 0.0 for e in examples]).double()
    lengths = [int(size) for size in ranks.total(sizes).tolist()]
    own = [
        found[e.index].cpu().double() if here else torch.zeros(length, dtype=torch.float64)
        for e, here, length in zip(examples, known, lengths, strict=True)
    ]
    kind = next(iter(found.values()), torch.zeros(0))
    every = ranks.total(torch.cat(own)).to(kind.device, kind.dtype).split(lengths)
    return dict(zip((e.index for e in examples), every, strict=True))


def appraisal(
    credited: CreditedSample,
    index: int,
    divergences: Mapping[int, Tensor],
    values: Mapping[int, Float32[np.ndarray, " T"]],
) -> Appraisal:
    """What was found of one sample."""
    mask = credited.sample.loss_mask
    told = [np.zeros(mask.shape, np.float32) for _ in range(2)]
    if index in divergences:
        told[0][mask] = divergences[index].numpy()
    if index in values:
        told[1][mask] = values[index]
    return Appraisal(divergence=told[0], values=told[1])
