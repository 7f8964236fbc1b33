"""How prompts of different lengths share forward passes. Pure: numbers in, numbers out."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Int32, Int64

from cairn.data.trajectory import Prompt

_CALL_COST = 64
"""What one more forward pass costs, in tokens: about what reading a small model's weights takes."""


def distinct(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[int]]:
    """The different prompts in order of appearance, and for each given prompt its index among them."""
    index: dict[tuple[bytes, tuple[str, ...]], int] = {}
    unique: list[Prompt] = []
    rows: list[int] = []
    for prompt in prompts:
        key = (prompt.token_ids.tobytes(), prompt.images)
        if key not in index:
            index[key] = len(unique)
            unique.append(prompt)
        rows.append(index[key])
    return unique, rows


def buckets(lengths: Sequence[int], *, call_cost: int = _CALL_COST) -> list[list[int]]:
    """Split indices into passes so that padded tokens plus `call_cost` for each pass are fewest.

    Example: lengths 10, 12, 300 with a call cost of 64 give [[0, 1], [2]]: one pass would compute 900 tokens.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    ends = [i + 1 for i in range(len(order)) if i + 1 == len(order) or lengths[order[i]] != lengths[order[i + 1]]]
    best: dict[int, tuple[int, int]] = {0: (0, 0)}  # rows done -> (cost, rows done before the last pass)
    for end in ends:
        width = lengths[order[end - 1]]
        best[end] = min((cost + (end - start) * width + call_cost, start) for start, (cost, _) in best.items())
    cuts = [len(order)]
    while cuts[-1] > 0:
        cuts.append(best[cuts[-1]][1])
    cuts.reverse()
    return [order[start:end] for start, end in pairwise(cuts)]


def micro_batches(prompts: Sequence[Prompt], answer_lengths: Sequence[int], *, max_tokens: int) -> list[list[int]]:
    """Split samples so that each part computes at most `max_tokens` padded tokens, siblings of one prompt together.

    A part holds at least one sample, however long; a prompt is computed once for each part that it is in.
    """
    unique, rows = distinct(prompts)
    order = sorted(range(len(prompts)), key=lambda i: (unique[rows[i]].token_ids.shape[0], rows[i], answer_lengths[i]))
    parts: list[list[int]] = []
    seen: set[int] = set()
    widest = 0
    for i in order:
        width = unique[rows[i]].token_ids.shape[0]  # rises along the order, so it is the part's widest
        widest = max(widest, answer_lengths[i])
        cost = len(seen | {rows[i]}) * width + (len(parts[-1]) + 1 if parts else 1) * widest
        if not parts or cost > max_tokens:
            parts.append([])
            seen, widest = set(), answer_lengths[i]
        parts[-1].append(i)
        seen.add(rows[i])
    return parts


def padded_left(
    sequences: Sequence[Int32[np.ndarray, " P"]],
) -> tuple[Int64[np.ndarray, "B P"], Int64[np.ndarray, "B P"]]:
    """Ids and mask, each row ending at the right edge; padding is id 0 under mask 0."""
    width = max(s.shape[0] for s in sequences)
    ids = np.zeros((len(sequences), width), np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, width - sequence.shape[0] :] = sequence
        mask[row, width - sequence.shape[0] :] = 1
    return ids, mask


def padded_right(sequences: Sequence[Int32[np.ndarray, " A"]]) -> Int64[np.ndarray, "B A"]:
    """Ids, each row starting at the left edge; padding is id 0."""
    ids = np.zeros((len(sequences), max(s.shape[0] for s in sequences)), np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : sequence.shape[0]] = sequence
    return ids
