"""Token trees: sequences that begin alike share what they begin with, and every shared token is computed once.

A tree's tokens stand in one row, depth first. A token sees itself and its ancestors, which are the earlier tokens whose
subtree reaches as far as it; its position is its depth. Pure: numbers in, numbers out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTree:
    """N tokens of S sequences with a common first token, each token once."""

    ids: Int64[np.ndarray, " N"]
    positions: Int64[np.ndarray, " N"]
    ends: Int64[np.ndarray, " N"]  # place of the last token of each token's subtree
    sequences: tuple[int, ...]  # the numbers of its sequences, as they were given
    paths: tuple[Int64[np.ndarray, " L"], ...]  # of each of them: the places of its tokens

    def __len__(self) -> int:
        return self.ids.shape[0]


def token_trees(sequences: Sequence[Int64[np.ndarray, " L"]]) -> list[TokenTree]:
    """The fewest tokens that hold all `sequences`, none of which is empty; one tree for each first token."""
    order = sorted(range(len(sequences)), key=lambda i: sequences[i].tolist())
    trees: list[list[int]] = []
    for i in order:
        if not trees or sequences[trees[-1][0]][0] != sequences[i][0]:
            trees.append([])
        trees[-1].append(i)
    return [_tree(numbers, [sequences[i] for i in numbers]) for numbers in trees]


def _tree(numbers: Sequence[int], ordered: Sequence[Int64[np.ndarray, " L"]]) -> TokenTree:
    """In dictionary order each sequence shares with the tree exactly what it shares with the one before it."""
    parts: list[Int64[np.ndarray, " L"]] = []
    depths: list[Int64[np.ndarray, " L"]] = []
    paths: list[Int64[np.ndarray, " L"]] = []
    closed: list[tuple[Int64[np.ndarray, " L"], int]] = []  # places whose subtree is whole, and its last place
    size = 0
    path = np.empty(0, np.int64)
    before = np.empty(0, np.int64)
    for sequence in ordered:
        shared = common(before, sequence)
        closed.append((path[shared:], size - 1))
        fresh = np.arange(size, size + sequence.shape[0] - shared)
        path = np.concatenate([path[:shared], fresh])
        parts.append(sequence[shared:])
        depths.append(np.arange(shared, sequence.shape[0]))
        paths.append(path)
        size += fresh.shape[0]
        before = sequence
    closed.append((path, size - 1))
    ends = np.empty(size, np.int64)
    for places, last in closed:
        ends[places] = last
    return TokenTree(
        ids=np.concatenate(parts),
        positions=np.concatenate(depths),
        ends=ends,
        sequences=tuple(numbers),
        paths=tuple(paths),
    )


def common(one: Int64[np.ndarray, " A"], other: Int64[np.ndarray, " B"]) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(one.shape[0], other.shape[0])
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if differing.size else length


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Trees side by side in R rows of W places; places that hold no token are padding."""

    ids: Int64[np.ndarray, "R W"]
    positions: Int64[np.ndarray, "R W"]
    ends: Int64[np.ndarray, "R W"]  # in the row; -1 at padding
    paths: tuple[Int64[np.ndarray, " L"], ...]  # of each sequence, in the order given: row x W + place


def packed(trees: Sequence[TokenTree], *, width: int = 0) -> Rows:
    """Put trees into rows as wide as the widest of them, or `width`: the large ones first, each where it fits first."""
    width = max(width, *(len(tree) for tree in trees))
    rows: list[list[TokenTree]] = []
    used: list[int] = []
    for tree in sorted(trees, key=len, reverse=True):
        row = next((i for i, full in enumerate(used) if full + len(tree) <= width), len(rows))
        if row == len(rows):
            rows.append([])
            used.append(0)
        rows[row].append(tree)
        used[row] += len(tree)
    ids, positions = (np.zeros((len(rows), width), np.int64) for _ in range(2))
    ends = np.full((len(rows), width), -1, np.int64)
    paths: dict[int, Int64[np.ndarray, " L"]] = {}
    for row, held in enumerate(rows):
        start = 0
        for tree in held:
            span = slice(start, start + len(tree))
            ids[row, span], positions[row, span], ends[row, span] = tree.ids, tree.positions, tree.ends + start
            offset = row * width + start
            paths |= {i: path + offset for i, path in zip(tree.sequences, tree.paths, strict=True)}
            start += len(tree)
    return Rows(ids=ids, positions=positions, ends=ends, paths=tuple(paths[i] for i in range(len(paths))))


def tree_batches(sequences: Sequence[Int64[np.ndarray, " L"]], *, max_tokens: int) -> list[list[int]]:
    """Split sequences so that each part's trees hold at most `max_tokens` tokens, those that begin alike together.

    A part holds at least one sequence, however long; what it shares with another part is computed in both.
    """
    order = sorted(range(len(sequences)), key=lambda i: sequences[i].tolist())
    parts: list[list[int]] = []
    size = 0
    for at, i in enumerate(order):
        shared = common(sequences[order[at - 1]], sequences[i]) if at else 0
        more = sequences[i].shape[0] - shared
        if not parts or size + more > max_tokens:
            parts.append([])
            size, more = 0, sequences[i].shape[0]
        parts[-1].append(i)
        size += more
    return parts
