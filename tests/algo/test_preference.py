"""Preference costs: golden numbers, slopes, and what must hold whatever the numbers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo import preference

margins = st.lists(st.floats(-50, 50), min_size=1, max_size=6).map(lambda v: torch.tensor(v, dtype=torch.float64))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_golden_dpo() -> None:
    got = preference.direct(torch.tensor([0.0, 5.0, -5.0], dtype=torch.float64), beta=0.1)
    assert got.tolist() == pytest.approx([math.log(2), -math.log(sigmoid(0.5)), -math.log(sigmoid(-0.5))])


def test_smoothing_thinks_some_pairs_the_wrong_way_round() -> None:
    got = preference.direct(torch.tensor([5.0], dtype=torch.float64), beta=0.1, smoothing=0.25)
    assert got.item() == pytest.approx(-0.75 * math.log(sigmoid(0.5)) - 0.25 * math.log(sigmoid(-0.5)))


@given(margins)
def test_the_wider_the_margin_the_smaller_dpos_cost_however_wide_it_is(values: torch.Tensor) -> None:
    free = values.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(preference.direct(free, beta=0.1).sum(), free)
    assert (slopes < 0).all()
    assert slopes.tolist() == pytest.approx([-0.1 * sigmoid(-0.1 * m) for m in values.tolist()])
    assert torch.isfinite(preference.direct(values * 1e6, beta=1.0)).all()


def test_golden_ipo() -> None:
    got = preference.identity(torch.tensor([5.0, 0.0, 7.0], dtype=torch.float64), beta=0.1)
    assert got.tolist() == pytest.approx([0.0, 25.0, 4.0])


def test_golden_kto() -> None:
    got = preference.prospect(
        torch.tensor([4.0, 4.0], dtype=torch.float64),
        torch.tensor([True, False]),
        beta=0.5,
        baseline=1.0,
        desirable_weight=2.0,
        undesirable_weight=3.0,
    )
    assert got.tolist() == pytest.approx([2 * (1 - sigmoid(1.5)), 3 * (1 - sigmoid(-1.5))])


@pytest.mark.parametrize("desirable", [True, False])
@given(gains=margins, baseline=st.floats(0, 5))
def test_ktos_cost_falls_with_a_desirable_gain_and_rises_with_another(
    *, desirable: bool, gains: torch.Tensor, baseline: float
) -> None:
    free = gains.clone().requires_grad_()
    which = torch.full(gains.shape, desirable)
    cost = preference.prospect(free, which, beta=0.1, baseline=baseline)
    (slopes,) = torch.autograd.grad(cost.sum(), free)
    assert ((cost >= 0) & (cost <= 1)).all()
    assert (slopes < 0).all() if desirable else (slopes > 0).all()
