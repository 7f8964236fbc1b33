"""The relatives of PPO's clip: values and gradients by hand."""

import math

import pytest
import torch
from torch import Tensor

from cairn.algo import corrections, losses

NONE = torch.zeros(2)


def gradient(cost: Tensor, logprobs: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(cost.sum(), logprobs)
    return found


def test_at_ratio_one_a_sequence_costs_minus_its_advantage_and_every_token_has_its_gradient() -> None:
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    credit = (torch.tensor([0.5, 0.5, 0.25]), torch.zeros(3))
    cost = losses.sequence_clipped(
        logprobs, logprobs.detach(), credit, torch.tensor([0, 0, 1]), clip_low=3e-4, clip_high=4e-4
    )
    assert cost.tolist() == pytest.approx([-0.5, -0.5, -0.25])
    assert gradient(cost, logprobs).tolist() == pytest.approx([-0.5, -0.5, -0.25])


def test_a_sequences_ratio_is_the_geometric_mean_and_is_clipped_as_one() -> None:
    behaviour = torch.tensor([-1.0, -1.0])
    logprobs = torch.tensor([-0.9, -1.0], requires_grad=True)  # the mean of the logs is 0.05
    one = torch.tensor([0, 0])
    free = losses.sequence_clipped(logprobs, behaviour, (torch.ones(2), NONE), one, clip_low=0.1, clip_high=0.1)
    assert free.tolist() == pytest.approx([-math.exp(0.05)] * 2)
    cut = losses.sequence_clipped(logprobs, behaviour, (torch.ones(2), NONE), one, clip_low=0.01, clip_high=0.01)
    assert cut.tolist() == pytest.approx([-1.01] * 2)
    assert gradient(cut, logprobs).tolist() == [0.0, 0.0]
    down = losses.sequence_clipped(logprobs, behaviour, (NONE, -torch.ones(2)), one, clip_low=0.01, clip_high=0.01)
    assert down.tolist() == pytest.approx([math.exp(0.05)] * 2)


def test_clipped_weights_keep_every_gradient() -> None:
    behaviour = torch.full((3,), -2.0)
    logprobs = (torch.log(torch.tensor([0.1, 1.0, 9.0])) - 2.0).requires_grad_()
    credit = (torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, -1.0]))
    cost = losses.clipped_weights(logprobs, behaviour, credit, cap=5.0, floor=0.2)
    assert gradient(cost, logprobs).tolist() == pytest.approx([-0.2, -1.0, 5.0])


def test_the_score_function_has_no_ratio() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    cost = losses.score_function(logprobs, (torch.tensor([2.0, 0.0]), torch.tensor([0.0, -1.0])))
    assert cost.tolist() == [2.0, -2.0]
    assert gradient(cost, logprobs).tolist() == [-2.0, 1.0]


def test_the_soft_gate_has_the_plain_gradient_at_ratio_one_and_fades_away_from_it() -> None:
    behaviour = torch.zeros(2)
    for log_ratio, faded in ((0.0, False), (2.0, True), (-2.0, True)):
        logprobs = torch.full((2,), log_ratio, requires_grad=True)
        cost = losses.soft_gate(logprobs, behaviour, (torch.tensor([1.0, 0.0]), torch.tensor([0.0, -1.0])))
        up, down = gradient(cost, logprobs).tolist()
        plain = math.exp(log_ratio)
        assert (-up == pytest.approx(plain)) is not faded
        assert (down == pytest.approx(plain)) is not faded
        assert 0 < -up <= plain + 1e-6


@pytest.mark.parametrize("sign", ["positive", "negative"])
def test_merged_credits_cost_what_the_single_ones_do(sign: str) -> None:
    generator = torch.Generator().manual_seed(1)
    logprobs, behaviour = torch.randn(6, generator=generator), torch.randn(6, generator=generator)
    one, other = torch.rand(6, generator=generator), torch.rand(6, generator=generator)
    none = torch.zeros(6)
    sequence = torch.tensor([0, 0, 0, 1, 1, 2])

    def credit(amount: Tensor) -> tuple[Tensor, Tensor]:
        return (amount, none) if sign == "positive" else (none, -amount)

    def costs(amount: Tensor) -> list[Tensor]:
        own = credit(amount)
        return [
            losses.sequence_clipped(logprobs, behaviour, own, sequence, clip_low=0.2, clip_high=0.3),
            losses.clipped_weights(logprobs, behaviour, own, cap=2.0),
            losses.score_function(logprobs, own),
            losses.soft_gate(logprobs, behaviour, own),
        ]

    for merged, a, b in zip(costs(one + other), costs(one), costs(other), strict=True):
        assert torch.allclose(merged, a + b, atol=1e-5)


RATIOS = torch.log(torch.tensor([0.4, 0.5, 1.0, 5.0, 5.1], dtype=torch.float64))


def test_published_weights_of_single_tokens() -> None:
    masked = corrections.token_masked(RATIOS + 1e-12, low=0.5, high=5.0 + 1e-9)
    assert masked.tolist() == pytest.approx([0.0, 0.5, 1.0, 5.0, 0.0])
    capped = corrections.token_truncated(torch.log(torch.tensor([0.4, 0.5, 1.0, 5.0, 5.1])), cap=2.0)
    assert capped.tolist() == pytest.approx([0.4, 0.5, 1.0, 2.0, 2.0])


def test_sequences_are_weighed_by_their_product_or_kept_by_their_mean() -> None:
    log_ratio = torch.log(torch.tensor([2.0, 3.0, 0.5]))
    sequence = torch.tensor([0, 0, 1])
    assert corrections.sequence_truncated(log_ratio, sequence, cap=5.0).tolist() == pytest.approx([5.0, 5.0, 0.5])
    assert corrections.sequence_masked(log_ratio, sequence, low=0.4, high=5.0).tolist() == pytest.approx([0, 0, 0.5])
    near = torch.log(torch.tensor([1.0005, 0.9995, 1.01]))
    kept = corrections.geometric_mask(near, sequence)
    assert kept.tolist() == pytest.approx([1.0005, 0.9995, 0.0])


def test_the_bounds_themselves_are_kept() -> None:
    assert corrections.token_masked(torch.zeros(1), low=1.0, high=1.0).tolist() == [1.0]
    assert corrections.sequence_masked(torch.zeros(2), torch.tensor([0, 0]), low=1.0, high=1.0).tolist() == [1.0, 1.0]
    assert corrections.geometric_mask(torch.zeros(2), torch.tensor([0, 0]), low=1.0, high=1.0).tolist() == [1.0, 1.0]


def test_a_long_sequence_is_masked_by_its_product_or_by_its_mean() -> None:
    log_ratio = torch.log(torch.tensor([1.5, 1.5, 1.5, 2.0]))
    sequence = torch.tensor([0, 0, 0, 1])
    by_product = corrections.sequence_masked(log_ratio, sequence, low=0.0, high=3.0)
    assert by_product.tolist() == pytest.approx([0.0, 0.0, 0.0, 2.0])  # 1.5^3 is beyond 3
    kept = corrections.sequence_masked(log_ratio, sequence, low=0.0, high=3.5)
    assert kept.tolist() == pytest.approx([3.375, 3.375, 3.375, 2.0])
    by_mean = corrections.geometric_mask(log_ratio, sequence, low=0.0, high=1.6)
    assert by_mean.tolist() == pytest.approx([1.5, 1.5, 1.5, 0.0])


def test_weights_have_no_gradient() -> None:
    log_ratio = torch.zeros(2, requires_grad=True)
    assert not corrections.token_truncated(log_ratio, cap=2.0).requires_grad
    assert not corrections.geometric_mask(log_ratio, torch.tensor([0, 0])).requires_grad
