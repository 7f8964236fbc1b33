"""However a batch is split, over micro-batches or over ranks, its loss and gradient are the same."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.algo import losses
from cairn.data.sample import Aggregation, Batch, CreditedSample
from cairn.data.trajectory import ScoredGroup
from cairn.rollout.estimators import by_trajectory
from cairn.rollout.samples import Crediting, credit
from cairn.train.learner import GradientLearner, Settings
from cairn.train.objective import Loss, Objective
from cairn.train.optimisation import Optimisation
from rollout.test_samples import group, member, rounds, turn
from tiny_policy import policy
from train.test_learner import SETTINGS


def batch_of(groups: Sequence[ScoredGroup], aggregation: Aggregation) -> Batch | None:
    centred = by_trajectory(lambda rewards: rewards - rewards.mean())
    return credit(groups, Crediting(advantages=centred, aggregation=aggregation, norm=7.0)).batch


def cost(one: CreditedSample) -> float:
    """What a sample costs under log-probabilities that follow from its ids, with a KL-like term beside."""
    mask = one.sample.loss_mask
    now = torch.from_numpy(np.cos(one.sample.token_ids[mask].astype(np.float64)))
    before = torch.from_numpy(one.sample.logprobs[mask].astype(np.float64)).clamp(-1, 1)
    worth = [torch.from_numpy(own[mask].astype(np.float64)) for own in (one.positive, one.negative, one.weights)]
    own = losses.clipped_surrogate(now, before, (worth[0], worth[1]), clip_low=0.2, clip_high=0.28)
    return float((own + 0.1 * worth[2] * now.square()).sum())


@pytest.mark.parametrize("aggregation", list(Aggregation))
@settings(max_examples=15, deadline=None)
@given(groups=rounds(), cuts=st.lists(st.integers(0, 12), max_size=4), seed=st.integers(0, 99))
def test_a_batchs_loss_is_the_sum_over_any_parts_of_it(
    aggregation: Aggregation, groups: list[ScoredGroup], cuts: list[int], seed: int
) -> None:
    batch = batch_of(groups, aggregation)
    if batch is None:
        return
    whole = sum(cost(one) for one in batch.samples)
    order = np.random.default_rng(seed).permutation(len(batch.samples))
    parts = np.split(order, sorted(min(cut, len(order)) for cut in cuts))
    assert sum(sum(cost(batch.samples[i]) for i in part) for part in parts) == pytest.approx(whole, abs=1e-6)


def eight(aggregation: Aggregation) -> Batch:
    """Eight samples of different lengths, some of one trajectory."""
    members = [
        member([turn([10 + i], list(range(20, 21 + i % 3))), turn([30 + i], [40])], float(i % 2)) for i in range(4)
    ]
    batch = batch_of([group(*members)], aggregation)
    assert batch is not None
    assert len(batch.samples) == 8
    return batch


def gradients(parts: Sequence[Batch], loss: Loss) -> tuple[float, dict[str, torch.Tensor]]:
    """The sum over ranks, each of which has one part and never sees the others."""
    total, sums = 0.0, dict[str, torch.Tensor]()
    for part in parts:
        wanted: Settings = replace(
            SETTINGS,
            improvement=Optimisation(learning_rate=1e-9),
            objective=Objective(loss=loss, entropy_coefficient=0.01, correction="recomputed"),
            bounds=replace(SETTINGS.bounds, mean=99.0, token=99.0),
        )
        rank = GradientLearner(policy=policy(), settings=wanted)
        for name, weight in rank.policy.model.named_parameters():
            weight.register_post_accumulate_grad_hook(
                lambda p, n=name: sums.__setitem__(n, sums.get(n, torch.zeros_like(p)) + p.grad)
            )
        total += rank.improve(part).loss
    return total, sums


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_the_gradient_of_eight_samples_is_the_same_as_one_two_or_eight_parts(aggregation: Aggregation) -> None:
    batch = eight(aggregation)
    (loss, whole), *others = [
        gradients([Batch(samples=batch.samples[at : at + size]) for at in range(0, 8, size)], "gspo")
        for size in (8, 4, 1)
    ]
    for other, sums in others:
        assert other == pytest.approx(loss, rel=1e-4)
        for name, own in whole.items():
            torch.testing.assert_close(sums[name], own, atol=1e-5, rtol=1e-3)
