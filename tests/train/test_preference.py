"""Learning from pairs: exact gradients, whatever fits into one forward pass."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cairn.data.sample import Preference, Sample
from cairn.models.policy import Policy
from cairn.train.learner import GradientLearner
from cairn.train.preference import PreferenceLoss, PreferenceObjective, cost_and_slopes, sides_of
from cairn.train.reference import Reference
from tiny_policy import credited, flat_logprobs, policy, prompt
from train.test_learner import SETTINGS, assert_same, learner, logprob


def preferring(loss: PreferenceLoss = "dpo", *, max_tokens: int = 2048, beta: float = 0.1) -> GradientLearner:
    objective = PreferenceObjective(loss=loss, beta=beta)
    return learner(settings=replace(SETTINGS, preference=objective, max_tokens=max_tokens))


def pairs(before: Policy) -> tuple[Preference, ...]:
    """Of trajectories of one sample and of two."""

    def said(length: int, *answers: list[int]) -> tuple[Sample, ...]:
        return tuple(credited(prompt(length + i), a, policy=before).sample for i, a in enumerate(answers))

    return (
        Preference(chosen=said(6, [10, 11], [12]), rejected=said(6, [12, 1])),
        Preference(chosen=said(9, [20]), rejected=said(9, [21, 22, 23], [10])),
    )


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_what_is_preferred_becomes_likelier_than_the_other(loss: PreferenceLoss) -> None:
    before, trained = policy(), preferring(loss)
    for version in range(3):
        sampled_now = [replace_versions(pair, version) for pair in pairs(trained.policy)]
        assert trained.prefer(sampled_now).version == version + 1
    for pair in pairs(before):
        gains = [
            sum(
                logprob(trained.policy, s.token_ids, int(s.loss_mask.sum()))
                - logprob(before, s.token_ids, int(s.loss_mask.sum()))
                for s in side
            )
            for side in (pair.chosen, pair.rejected)
        ]
        assert gains[0] > gains[1] + 0.05


def replace_versions(pair: Preference, version: int) -> Preference:
    def now(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        return tuple(replace(s, versions=np.where(s.loss_mask, version, -1).astype(np.int32)) for s in samples)

    return Preference(chosen=now(pair.chosen), rejected=now(pair.rejected))


def test_dpos_gradient_is_that_of_its_definition() -> None:
    trained, by_hand, reference = preferring(), policy(), policy()
    for weight in by_hand.model.parameters():  # somewhere else than the reference is
        weight.data += 0.01 * torch.sin(torch.arange(weight.numel(), dtype=torch.float32)).view(weight.shape)
    trained.policy.model.load_state_dict(by_hand.model.state_dict())
    trained._reference = Reference(reference)
    seen: dict[str, torch.Tensor] = {}
    for name, weight in trained.policy.model.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda p, n=name: seen.update({n: p.grad.clone()}))
    data = pairs(by_hand)
    step = trained.prefer(data)

    def score(scored: Policy, samples: tuple[Sample, ...]) -> torch.Tensor:
        total = torch.zeros(())
        for one in samples:
            chosen = flat_logprobs(scored, one.token_ids).gather(-1, torch.from_numpy(one.token_ids[1:, None]).long())
            total = total + chosen[:, 0][torch.from_numpy(one.loss_mask[1:])].sum()
        return total

    costs = []
    for pair in data:
        with torch.no_grad():
            held = score(reference, pair.chosen) - score(reference, pair.rejected)
        margin = score(by_hand, pair.chosen) - score(by_hand, pair.rejected) - held
        costs.append(-torch.nn.functional.logsigmoid(0.1 * margin))
    cost = torch.stack(costs).mean()
    cost.backward()
    assert step.loss == pytest.approx(float(cost.detach()), rel=1e-4)
    for name, weight in by_hand.model.named_parameters():
        torch.testing.assert_close(seen[name], weight.grad, atol=1e-5, rtol=1e-3, msg=name)


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_how_pairs_are_split_changes_nothing_but_rounding(loss: PreferenceLoss) -> None:
    whole, split = preferring(loss), preferring(loss, max_tokens=1)
    a, b = whole.prefer(pairs(policy())), split.prefer(pairs(policy()))
    assert a.loss == pytest.approx(b.loss, rel=1e-4)
    assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-3)


def test_at_the_reference_every_cost_is_known() -> None:
    one = pairs(policy())[:1]  # a single pair has no other prompts: KTO's baseline is 0
    assert preferring("dpo").prefer(one).loss == pytest.approx(np.log(2), rel=1e-5)
    assert preferring("ipo").prefer(one).loss == pytest.approx(25.0, rel=1e-4)
    assert preferring("kto").prefer(one).loss == pytest.approx(0.5, rel=1e-5)


def test_every_side_has_its_own_slope() -> None:
    sides = sides_of(pairs(policy()))  # of 3, 2, 1 and 4 sampled tokens
    ipo = PreferenceObjective(loss="ipo", beta=0.1)
    cost, slopes = cost_and_slopes(ipo, torch.tensor([3.0, 2.0, 3.0, 4.0]).double(), sides, baseline=0.0)
    assert cost == pytest.approx((25 + 9) / 2)  # means of tokens differ by 0 and by 2
    assert slopes.tolist() == pytest.approx([-5 / 3, 5 / 2, -3, 3 / 4])
    kto = PreferenceObjective(loss="kto", beta=0.1)
    cost, slopes = cost_and_slopes(kto, torch.tensor([10.0, -10.0, 20.0, -20.0]).double(), sides, baseline=0.0)
    one, two = 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-2))
    assert cost == pytest.approx(1 - (one + two) / 2)
    each = [0.1 / 4 * s * (1 - s) for s in (one, two)]
    assert slopes.tolist() == pytest.approx([-each[0], each[0], -each[1], each[1]])


def test_ktos_baseline_is_the_gain_of_answers_to_other_prompts() -> None:
    before = policy()
    sides = sides_of(pairs(before))
    told = [(e.prompt.token_ids.shape[0], e.answer.tolist()) for e in sides.mismatched()]
    assert told == [(6, [20]), (6, [21, 22, 23]), (9, [10, 11]), (9, [12, 1])]
    assert sides.lengths.tolist() == [3, 2, 1, 4]
    assert sides_of(pairs(before)[:1]).mismatched() == []


def test_a_learner_that_prefers_resumes_with_its_reference(tmp_path: Path) -> None:
    first = preferring()
    first.prefer(pairs(policy()))
    first.save(tmp_path / "saved")
    again = preferring()
    again.load(tmp_path / "saved")
    data = [replace_versions(pair, 1) for pair in pairs(first.policy)]
    first.prefer(data)
    again.prefer(data)
    assert_same(first, again)
