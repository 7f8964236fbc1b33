import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from cairn.algo import losses

FLOATS = st.floats(-3, 3, width=32)
CLIP = {"clip_low": 0.2, "clip_high": 0.28}
Case = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Log-probabilities, behaviour's, and advantages of either sign."""
    size = draw(st.integers(1, 12))
    row = st.lists(FLOATS, min_size=size, max_size=size).map(torch.tensor)
    return draw(row), draw(row), draw(row)


def credit(advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return advantages.clamp(min=0), advantages.clamp(max=0)


def by_definition(logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    ratio = (logprobs - behaviour).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)


def test_golden_clipped_surrogate() -> None:
    # ratios 2, 2, 1/2, 1/2 with advantages +1, -1, +1, -1 and clip [0.8, 1.28]
    ratio = torch.tensor([2.0, 2.0, 0.5, 0.5])
    got = losses.clipped_surrogate(ratio.log(), torch.zeros(4), credit(torch.tensor([1.0, -1.0, 1.0, -1.0])), **CLIP)
    torch.testing.assert_close(got, torch.tensor([-1.28, 2.0, -0.5, 0.8]))


def test_golden_dual_clip() -> None:
    ratio = torch.tensor([10.0, 10.0, 2.0])
    advantages = torch.tensor([-1.0, 1.0, -1.0])
    got = losses.clipped_surrogate(ratio.log(), torch.zeros(3), credit(advantages), dual_clip=3.0, **CLIP)
    torch.testing.assert_close(got, torch.tensor([3.0, -1.28, 2.0]))


@given(cases())
def test_the_clipped_surrogate_equals_its_definition(case: Case) -> None:
    logprobs, behaviour, advantages = case
    got = losses.clipped_surrogate(logprobs, behaviour, credit(advantages), **CLIP)
    torch.testing.assert_close(got, by_definition(logprobs, behaviour, advantages), atol=1e-3, rtol=1e-4)


@given(cases(), st.lists(FLOATS, min_size=12, max_size=12).map(torch.tensor))
def test_merged_credits_cost_what_the_merged_samples_cost(case: Case, others: torch.Tensor) -> None:
    logprobs, behaviour, first = case
    second = others[: len(first)]
    merged = (first.clamp(min=0) + second.clamp(min=0), first.clamp(max=0) + second.clamp(max=0))
    got = losses.clipped_surrogate(logprobs, behaviour, merged, **CLIP)
    apart = sum(losses.clipped_surrogate(logprobs, behaviour, credit(a), **CLIP) for a in (first, second))
    torch.testing.assert_close(got, apart, atol=1e-3, rtol=1e-4)


@given(cases())
def test_on_policy_the_gradient_is_reinforce(case: Case) -> None:
    logprobs, _, advantages = case
    logprobs.requires_grad_()
    losses.clipped_surrogate(logprobs, logprobs.detach(), credit(advantages), **CLIP).sum().backward()
    torch.testing.assert_close(logprobs.grad, -advantages)


@given(cases())
def test_a_token_at_the_clip_has_no_gradient_and_every_other_has(case: Case) -> None:
    logprobs, behaviour, advantages = case
    logprobs.requires_grad_()
    losses.clipped_surrogate(logprobs, behaviour, credit(advantages), **CLIP).sum().backward()
    held = losses.at_clip(logprobs.detach(), behaviour, credit(advantages), limits=(0.8, 1.28))
    assert logprobs.grad is not None
    assert not logprobs.grad[held].any()
    ratio = (logprobs.detach() - behaviour).exp()
    torch.testing.assert_close(logprobs.grad[~held], (-ratio * advantages)[~held], atol=1e-4, rtol=1e-4)


@given(cases(), st.integers(0, 12))
def test_splitting_a_batch_changes_nothing(case: Case, at: int) -> None:
    def cost(logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        return losses.clipped_surrogate(logprobs, behaviour, credit(advantages), **CLIP).sum()

    parts = cost(*(t[:at] for t in case)) + cost(*(t[at:] for t in case))
    torch.testing.assert_close(cost(*case), parts, atol=1e-3, rtol=1e-5)


def test_a_ratio_beyond_measure_stays_finite() -> None:
    got = losses.clipped_surrogate(torch.zeros(1), torch.tensor([-500.0]), credit(torch.tensor([-1.0])), **CLIP)
    assert torch.isfinite(got).all()


def test_golden_likelihood() -> None:
    got = losses.likelihood(torch.tensor([-1.0, -2.0, -math.inf]), torch.tensor([0.5, 1.0, 0.0]))
    assert got.tolist() == [0.5, 2.0, 0.0]


def test_golden_entropy() -> None:
    log_probs = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]).log()
    torch.testing.assert_close(losses.entropy(log_probs), torch.tensor([math.log(2), 0.0, math.log(3)]))


def test_the_gradient_of_entropy_is_finite_where_tokens_are_impossible() -> None:
    logits = torch.tensor([1.0, 2.0, 0.5], requires_grad=True)
    log_probs = logits.index_fill(-1, torch.tensor([1]), -torch.inf).log_softmax(-1)
    losses.entropy(log_probs).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[1] == 0
    assert logits.grad[0] < 0 < logits.grad[2]


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        losses.clipped_surrogate(torch.zeros(3), torch.zeros(4), credit(torch.zeros(3)), **CLIP)


# ── a critic's ────────────────────────────────────────────────────────────────


def test_golden_clipped_values() -> None:
    # it said 0 before; now 0.5 (held at 0.2), 0.1 (within), -0.5 (held at -0.2); the returns are 1, 1 and -0.3
    values, returns = torch.tensor([0.5, 0.1, -0.5]), torch.tensor([1.0, 1.0, -0.3])
    got = losses.clipped_values(values, torch.zeros(3), returns, clip=0.2)
    torch.testing.assert_close(got, torch.tensor([0.32, 0.405, 0.02]))
    free = losses.clipped_values(values, torch.zeros(3), returns, clip=None)
    torch.testing.assert_close(free, torch.tensor([0.125, 0.405, 0.02]))


@given(cases())
def test_a_held_value_never_costs_less_and_only_one_beyond_its_return_is_moved(case: Case) -> None:
    values, before, returns = case
    values.requires_grad_()
    held = losses.clipped_values(values, before, returns, clip=0.5)
    assert (held >= losses.clipped_values(values, before, returns, clip=None)).all()
    (slope,) = torch.autograd.grad(held.sum(), values)
    outside = (values.detach() - before).abs() > 0.5 + 1e-6
    better = (values.detach() - returns).abs() + 1e-5 < (
        before + (values.detach() - before).clamp(-0.5, 0.5) - returns
    ).abs()
    assert (slope[outside & better] == 0).all()
