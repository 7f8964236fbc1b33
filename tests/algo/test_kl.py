import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.kl import k1, k2, k3

ROWS = st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=8).map(torch.tensor)


def test_golden_estimates() -> None:
    d = torch.tensor([0.1])
    zero = torch.zeros(1)
    assert k1(d, zero).item() == pytest.approx(0.1)
    assert k2(d, zero).item() == pytest.approx(0.005)
    assert k3(d, zero).item() == pytest.approx(0.00484, abs=1e-5)


@given(ROWS)
def test_k2_and_k3_are_zero_exactly_where_the_policies_agree(d: torch.Tensor) -> None:
    for estimate in (k2, k3):
        value = estimate(d, torch.zeros_like(d))
        assert (value >= -1e-7).all()
        assert (value[d.abs() > 1e-2] > 0).all()
        assert (estimate(d, d) == 0).all()


@given(ROWS, ROWS)
def test_k1_and_k3_are_unbiased(logits: torch.Tensor, other: torch.Tensor) -> None:
    size = min(len(logits), len(other))
    policy, reference = ((r[:size].double() / 3).log_softmax(-1) for r in (logits, other))  # k3 is limited further out
    exact = (policy.exp() * (policy - reference)).sum()
    for estimate in (k1, k3):
        torch.testing.assert_close((policy.exp() * estimate(policy, reference)).sum(), exact, atol=1e-6, rtol=1e-6)


@given(ROWS, ROWS)
def test_the_expected_gradient_of_k2_is_that_of_the_divergence(logits: torch.Tensor, other: torch.Tensor) -> None:
    size = min(len(logits), len(other))
    reference = other[:size].double().log_softmax(-1)
    ours, exact = (logits[:size].double().requires_grad_() for _ in range(2))
    policy = ours.log_softmax(-1)
    (policy.detach().exp() * k2(policy, reference)).sum().backward()
    policy = exact.log_softmax(-1)
    (policy.exp() * (policy - reference)).sum().backward()
    torch.testing.assert_close(ours.grad, exact.grad, atol=1e-8, rtol=1e-6)


def test_a_ratio_beyond_measure_stays_finite() -> None:
    far = torch.tensor([-500.0, 500.0])
    for estimate in (k1, k2, k3):
        assert torch.isfinite(estimate(far, torch.zeros(2))).all()
    assert k3(far, torch.zeros(2)).max() == 10
