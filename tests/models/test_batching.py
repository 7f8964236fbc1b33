import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.models.batching import buckets, distinct, micro_batches, padded_left, padded_right

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=12)


def cost(parts: list[list[int]], lengths: list[int], call_cost: int) -> int:
    return sum(len(p) * max(lengths[i] for i in p) + call_cost for p in parts)


@given(LENGTHS, st.integers(0, 200))
def test_buckets_hold_every_index_once_and_cost_no_more_than_the_extremes(lengths: list[int], call_cost: int) -> None:
    parts = buckets(lengths, call_cost=call_cost)
    assert sorted(i for p in parts for i in p) == list(range(len(lengths)))
    one, each = [list(range(len(lengths)))], [[i] for i in range(len(lengths))]
    assert cost(parts, lengths, call_cost) <= min(cost(one, lengths, call_cost), cost(each, lengths, call_cost))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 60))
def test_no_other_split_of_the_sorted_lengths_is_cheaper(lengths: list[int], call_cost: int) -> None:
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    cheapest = min(
        cost(split, lengths, call_cost) for cuts in range(2 ** (len(order) - 1)) for split in [_cut(order, cuts)]
    )
    assert cost(buckets(lengths, call_cost=call_cost), lengths, call_cost) == cheapest


def _cut(order: list[int], cuts: int) -> list[list[int]]:
    parts = [[order[0]]]
    for at, i in enumerate(order[1:]):
        if cuts >> at & 1:
            parts.append([])
        parts[-1].append(i)
    return parts


def prompt(length: int, kind: int) -> Prompt:
    return Prompt(token_ids=np.full(length, kind, np.int32), images=())


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=20),
    st.integers(1, 200),
)
def test_micro_batches_hold_every_sample_once_within_their_budget(rows, max_tokens: int) -> None:
    prompts, answers = [prompt(n, k) for n, k, _ in rows], [a for _, _, a in rows]
    parts = micro_batches(prompts, answers, max_tokens=max_tokens)
    assert sorted(i for p in parts for i in p) == list(range(len(rows)))
    for part in parts:
        unique, _ = distinct([prompts[i] for i in part])
        padded = len(unique) * max(p.token_ids.shape[0] for p in unique) + len(part) * max(answers[i] for i in part)
        assert len(part) == 1 or padded <= max_tokens


def test_siblings_stay_together() -> None:
    prompts = [prompt(20, i % 4) for i in range(16)]
    parts = micro_batches(prompts, [3] * 16, max_tokens=70)
    assert [{i % 4 for i in part} for part in parts] == [{0, 1}, {2, 3}]


def test_images_tell_prompts_apart() -> None:
    ids = np.array([5], np.int32)
    prompts = [Prompt(token_ids=ids, images=(ImageId(image),)) for image in ("a", "b", "a")]
    assert distinct(prompts)[1] == [0, 1, 0]


def test_golden_padding() -> None:
    rows = [np.array([5, 6, 7], np.int32), np.array([8], np.int32)]
    ids, mask = padded_left(rows)
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert padded_right(rows).tolist() == [[5, 6, 7], [8, 0, 0]]
