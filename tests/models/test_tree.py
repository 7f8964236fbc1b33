"""Token trees: nothing is lost, nothing is there twice, and a token sees its ancestors alone."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cairn.models.tree import common, packed, token_trees, tree_batches
from cairn.models.trees import visible

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=8).map(
    lambda lists: [np.array(one, np.int64) for one in lists]
)


def prefixes(sequences: list[np.ndarray]) -> set[tuple[int, ...]]:
    return {tuple(s[: n + 1].tolist()) for s in sequences for n in range(s.shape[0])}


@given(SEQUENCES)
def test_every_shared_token_is_there_once(sequences: list[np.ndarray]) -> None:
    trees = token_trees(sequences)
    assert sum(len(tree) for tree in trees) == len(prefixes(sequences))
    assert sorted(i for tree in trees for i in tree.sequences) == list(range(len(sequences)))
    assert len(trees) == len({int(sequence[0]) for sequence in sequences})  # what shares nothing is packed by itself


@given(SEQUENCES, st.integers(0, 30))
def test_rows_hold_every_sequence_at_the_places_of_its_path(sequences: list[np.ndarray], width: int) -> None:
    rows = packed(token_trees(sequences), width=width)
    for sequence, path in zip(sequences, rows.paths, strict=True):
        assert rows.ids.flatten()[path].tolist() == sequence.tolist()
        assert rows.positions.flatten()[path].tolist() == list(range(sequence.shape[0]))
        assert len({int(place) // rows.ids.shape[1] for place in path}) == 1


@given(SEQUENCES)
def test_a_token_sees_itself_and_its_ancestors_alone(sequences: list[np.ndarray]) -> None:
    rows = packed(token_trees(sequences))
    height, width = rows.ids.shape
    seen = np.zeros((height, width, width), bool)
    for path in rows.paths:
        row, places = int(path[0]) // width, path % width
        for depth, place in enumerate(places):
            seen[row, place, places[: depth + 1]] = True
    padding = rows.ends < 0
    found = visible(torch.from_numpy(rows.ends)).numpy()
    assert (found[~padding] == seen[~padding]).all()
    assert (found[padding].sum(-1) == 1).all()


@given(SEQUENCES, st.integers(1, 20))
def test_batches_hold_every_sequence_once_and_keep_to_the_limit(sequences: list[np.ndarray], limit: int) -> None:
    parts = tree_batches(sequences, max_tokens=limit)
    assert sorted(i for part in parts for i in part) == list(range(len(sequences)))
    for part in parts:
        size = sum(len(tree) for tree in token_trees([sequences[i] for i in part]))
        assert size <= limit or len(part) == 1 or size == len(prefixes([sequences[part[0]]]))


def test_what_two_sequences_share_is_counted_from_the_start() -> None:
    assert common(np.array([1, 2, 3]), np.array([1, 2, 4, 5])) == 2
    assert common(np.array([1, 2]), np.array([1, 2, 4])) == 2
    assert common(np.array([7]), np.array([8])) == 0
