"""Moments in two bytes or one: unbiased, small, and as good as torch's own."""

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cairn.train.compact import BLOCK, Compact, CompactAdamW, WeightGroup, codes, decoded, encoded, rounded
from cairn.train.optimisation import Optimisation, Optimiser

Kind = Literal["float32", "bfloat16", "8bit"]
KINDS: tuple[Compact, ...] = ("bfloat16", "8bit")
SIDE = 96  # squared, above the size from which moments are kept in few bytes


def chance(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ── rounding ──────────────────────────────────────────────────────────────────


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_a_value_is_rounded_to_one_of_its_neighbours_in_bfloat16(values: list[float]) -> None:
    exact = torch.tensor(values, dtype=torch.float32)
    found = rounded(exact, chance(0)).float()
    assert torch.all((found - exact).abs() <= exact.abs() * 2**-7 + 1e-38)
    kept = exact.bfloat16().float()
    assert torch.equal(rounded(kept, chance(1)).float(), kept)


def test_rounding_to_bfloat16_is_right_on_average() -> None:
    exact = torch.tensor([1.0 + 2**-10, -3.001, 0.1, 1e-20]).repeat_interleave(200_000)
    mean = rounded(exact, chance(0)).double().view(4, -1).mean(1)
    torch.testing.assert_close(mean, exact.view(4, -1)[:, 0].double(), rtol=3e-5, atol=0)


@pytest.mark.parametrize("signed", [True, False])
def test_there_are_256_codes_from_nothing_to_all_of_a_blocks_largest_value(*, signed: bool) -> None:
    known = codes(signed=signed)
    assert known.shape == (256,)
    assert torch.all(known.diff() > 0)
    assert float(known[-1]) == 1.0
    assert float(known.min()) >= (-1.0 if signed else 0.0)
    positive = known[known > 0]
    assert 5e-7 * (0.5 if not signed else 1) < float(positive[0]) < 6e-7
    near = positive[positive > 0.1]
    assert float(near.diff().max()) < 0.016  # of the largest: 64 places between a tenth and all of it


@pytest.mark.parametrize("signed", [True, False])
def test_codes_are_right_on_average_whatever_the_blocks_scale(*, signed: bool) -> None:
    exact = torch.tensor([1.0, 0.3333, 0.0123, 4.5e-5] + ([-0.77] if signed else []))
    exact = torch.cat([exact, torch.zeros(BLOCK - len(exact))])
    for scale in (1.0, 1e-9, 3e4):
        found = torch.stack(
            [decoded(*encoded(exact * scale, chance(i), signed=signed), signed=signed) / scale for i in range(4000)]
        )
        wanted = exact[:5] if signed else exact[:4]
        torch.testing.assert_close(found.mean(0)[: len(wanted)], wanted, rtol=2e-2, atol=0)
        assert torch.all(found[:, 5:] == 0)


def test_a_square_that_is_small_beside_its_block_never_becomes_nothing() -> None:
    values = torch.full((3 * BLOCK + 5,), 1e-12)
    values[::BLOCK] = 1.0
    found = decoded(*encoded(values, chance(0), signed=False), signed=False)
    assert torch.all(found > 0)
    assert torch.all(decoded(*encoded(torch.zeros(700), chance(0), signed=False), signed=False) == 0)


@given(st.integers(1, 3 * BLOCK), st.integers(0, 2**30))
def test_a_code_is_beside_what_it_stands_for(size: int, seed: int) -> None:
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=size).astype(np.float32))
    ids, scales = encoded(values, chance(seed), signed=True)
    assert (ids.dtype, ids.shape, scales.shape) == (torch.uint8, (size,), (-(-size // BLOCK),))
    found = decoded(ids, scales, signed=True)
    largest = scales.repeat_interleave(BLOCK)[:size]
    assert torch.all((found - values).abs() <= 0.016 * largest)


# ── steps ─────────────────────────────────────────────────────────────────────


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return nn.Sequential(nn.Linear(SIDE, SIDE), nn.LayerNorm(SIDE), nn.Linear(SIDE, SIDE))


def train(kind: Kind, *, steps: int, rate: float = 1e-3) -> tuple[nn.Module, Optimiser, list[float]]:
    trained = model()
    optimiser = Optimiser(model=trained, optimisation=wanted(kind, rate=rate))
    costs: list[float] = []
    for number in range(steps):
        inputs, target = data(number)
        cost = (trained(inputs) - target).square().mean()
        cost.backward()
        optimiser.step()
        costs.append(float(cost.detach()))
    return trained, optimiser, costs


def wanted(kind: Kind, *, rate: float = 1e-3) -> Optimisation:
    return Optimisation(learning_rate=rate, weight_decay=0.01, state=kind, max_grad_norm=10.0)


def data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(32, SIDE, generator=chance(number))
    return inputs, inputs.roll(1, 1).sign()


@pytest.mark.parametrize("kind", KINDS)
def test_learning_goes_as_with_whole_moments(kind: Compact) -> None:
    _, _, whole = train("float32", steps=120)
    _, _, compact = train(kind, steps=120)
    assert compact[0] == whole[0]
    assert compact[1] == pytest.approx(whole[1], rel=1e-2)
    assert whole[-1] < 0.6 * whole[0]
    assert np.mean(compact[-20:]) == pytest.approx(np.mean(whole[-20:]), rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_step_is_torchs_own(kind: Compact) -> None:
    """No moment has been rounded yet."""
    ours, _, _ = train(kind, steps=1)
    theirs, _, _ = train("float32", steps=1)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-5)


def test_small_weights_and_embeddings_keep_whole_moments_and_are_torchs_own() -> None:
    def moved(kind: Kind) -> list[torch.Tensor]:
        torch.random.manual_seed(0)
        table = nn.ModuleDict({"words": nn.Embedding(SIDE, SIDE), "head": nn.Linear(8, 8)})
        optimiser = Optimiser(model=table, optimisation=wanted(kind))
        for _ in range(5):
            table["head"](table["words"](torch.arange(4))[:, :8]).square().sum().backward()
            optimiser.step()
        return [weight.detach() for weight in table.parameters()]

    for own, other in zip(moved("8bit"), moved("float32"), strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("kind", "bytes_each"), [("float32", 8.0), ("bfloat16", 4.0), ("8bit", 2.0 + 8 / BLOCK)])
def test_what_moments_take(kind: Kind, bytes_each: float) -> None:
    _, optimiser, _ = train(kind, steps=1)
    found = {name: tensor for name, tensor in optimiser.tensors() if name.startswith("0.weight/exp_avg")}
    taken = sum(tensor.numel() * tensor.element_size() for tensor in found.values())
    assert taken / SIDE**2 == pytest.approx(bytes_each)


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimiser_that_is_restored_goes_on_bit_for_bit(kind: Compact) -> None:
    straight, _, _ = train(kind, steps=6)
    first, optimiser, _ = train(kind, steps=3)
    again = Optimiser(model=first, optimisation=wanted(kind))
    again.restore({name: tensor.clone() for name, tensor in optimiser.tensors()}, steps=3)
    for number in range(3, 6):
        inputs, target = data(number)
        (first(inputs) - target).square().mean().backward()
        again.step()
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), first.parameters(), strict=True))


def test_a_mean_that_fades_is_not_held_up_by_its_code() -> None:
    """Rounded to the nearest, a mean at the low end of the codes would stay where it is for ever."""
    weight = nn.Parameter(torch.zeros(SIDE, SIDE))
    adamw = CompactAdamW([WeightGroup(weights=[weight])], betas=(0.9, 0.95), kind="8bit")
    for number in range(150):
        weight.grad = torch.ones(SIDE, SIDE) * (1.0 if number == 0 else 0.0)
        weight.grad[:, 0] = 1.0  # keeps the scale of every block
        adamw.step(1e-3)
    ids, scales = adamw.state[weight]["exp_avg"], adamw.state[weight]["exp_avg_scale"]
    left = decoded(ids, scales, signed=True).view(SIDE, SIDE)[:, 1:]
    assert float(left.mean()) < 1e-6


def test_weights_larger_than_a_piece_are_moved_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _, _ = train("8bit", steps=1)
    monkeypatch.setattr("cairn.train.compact._PIECE", 4 * BLOCK)
    pieces, optimiser, _ = train("8bit", steps=1)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), pieces.parameters(), strict=True))
    scales = dict(optimiser.tensors())["0.weight/exp_avg_scale"]
    assert torch.all(scales > 0)
