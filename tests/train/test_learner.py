from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from cairn.data.ids import ImageId, PolicyVersion
from cairn.data.sample import Batch, CreditedSample
from cairn.data.trajectory import Prompt
from cairn.errors import ConfigError, InvariantError
from cairn.models.policy import Policy
from cairn.train.guard import Agreement, Bounds
from cairn.train.learner import GradientLearner, Settings
from cairn.train.objective import Correction, Loss, Objective
from cairn.train.optimisation import Optimisation
from cairn.train.survey import Survey
from tiny_policy import batch, credited, flat_logprobs, policy, prompt

PLAIN = Optimisation(learning_rate=1e-3)
SETTINGS = Settings(imitation=PLAIN, improvement=PLAIN, bounds=Bounds(mean=1e-3, token=1e-3))


LOSSES: tuple[Loss, ...] = ("ppo", "gspo", "cispo", "reinforce", "sapo")
CORRECTIONS: tuple[Correction, ...] = (
    "token_truncated",
    "token_masked",
    "sequence_truncated",
    "sequence_masked",
    "geometric_mask",
    "recomputed",
)


def learner(trained: Policy | None = None, settings: Settings = SETTINGS) -> GradientLearner:
    return GradientLearner(policy=trained or policy(), settings=settings)


def weights(trained: GradientLearner) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in trained.policy.model.state_dict().items()}


def assert_same(a: GradientLearner, b: GradientLearner) -> None:
    assert a.version == b.version
    ours, theirs = weights(a), weights(b)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


def logprob(trained: Policy, ids: np.ndarray, count: int) -> float:
    with torch.no_grad():
        log_probs = flat_logprobs(trained, ids)[-count:]
    return float(log_probs.gather(-1, torch.from_numpy(ids[-count:, None]).long()).sum())


# ── improvement ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_makes_praised_answers_likelier_and_blamed_ones_rarer(loss: Loss) -> None:
    trained = learner(settings=replace(SETTINGS, objective=replace(SETTINGS.objective, loss=loss)))
    before = policy()
    good, bad = (
        credited(prompt(6), [10, 11], policy=before, credit=1),
        credited(prompt(6), [12, 1], policy=before, credit=-1),
    )
    step = trained.improve(Batch(samples=(good, bad)))
    assert step.version == trained.version == 1
    for sample, sign in ((good, 1), (bad, -1)):
        ids = sample.sample.token_ids
        assert sign * (logprob(trained.policy, ids, 2) - logprob(before, ids, 2)) > 0.01


@pytest.mark.parametrize("loss", LOSSES)
def test_on_policy_the_gradient_of_every_loss_is_that_of_reinforce(loss: Loss) -> None:
    trained = learner(settings=replace(SETTINGS, objective=replace(SETTINGS.objective, loss=loss)))
    by_hand = policy()
    data = batch(by_hand)
    seen: dict[str, torch.Tensor] = {}
    for name, weight in trained.policy.model.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda p, n=name: seen.update({n: p.grad.clone()}))
    trained.improve(data)
    total = torch.zeros(())
    for one in data.samples:
        ids = one.sample.token_ids
        chosen = flat_logprobs(by_hand, ids).gather(-1, torch.from_numpy(ids[1:, None]).long())[:, 0]
        total = (
            total - (torch.from_numpy(one.positive + one.negative)[1:] * torch.where(chosen > -1e9, chosen, 0.0)).sum()
        )
    total.backward()
    for name, weight in by_hand.model.named_parameters():
        torch.testing.assert_close(seen[name], weight.grad, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("max_tokens", [1, 20, 60])
def test_micro_batches_change_nothing_but_rounding(max_tokens: int) -> None:
    whole, split = learner(), learner(settings=replace(SETTINGS, max_tokens=max_tokens))
    data = batch(policy())
    a, b = whole.improve(data), split.improve(data)
    assert a.loss == pytest.approx(b.loss, abs=1e-5)
    assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-3)
    assert a.entropy == pytest.approx(b.entropy, rel=1e-4)
    a, b = whole.imitate(data), split.imitate(data)
    assert a.loss == pytest.approx(b.loss, rel=1e-3)
    assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-2)


def test_merged_samples_count_like_the_samples_they_stand_for() -> None:
    before = policy()
    apart, merged = learner(), learner()
    one = credited(prompt(6), [10, 11], policy=before, credit=0.5)
    other = credited(prompt(6), [10, 11], policy=before, credit=-0.25)
    both = replace(one, negative=other.negative, weights=one.weights + other.weights)
    a, b = apart.improve(Batch(samples=(one, other))), merged.improve(Batch(samples=(both,)))
    assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
    assert a.entropy == pytest.approx(b.entropy, rel=1e-5)


def test_what_answers_begin_with_in_common_is_computed_once_and_their_last_tokens_not_at_all() -> None:
    trained = learner()
    data = Batch(samples=tuple(credited(prompt(9), [10, a], policy=policy()) for a in (11, 12, 13)))
    assert trained.improve(data).trained_tokens == 9 + 1


def test_context_between_merged_turns_is_read_but_not_trained() -> None:
    before = policy()
    whole = credited(prompt(6), [10, 40, 41, 12], policy=before, credit=1)
    mask = whole.sample.loss_mask.copy()
    mask[[7, 8]] = False
    sample = replace(
        whole.sample,
        loss_mask=mask,
        logprobs=np.where(mask, whole.sample.logprobs, 0).astype(np.float32),
        versions=np.where(mask, 0, -1).astype(np.int32),
    )
    off = ~mask
    holed = replace(
        whole,
        sample=sample,
        positive=np.where(off, 0, whole.positive).astype(np.float32),
        weights=np.where(off, 0, whole.weights).astype(np.float32),
    )
    step = learner().improve(Batch(samples=(holed,)))  # the guard compares both sampled tokens with their context
    assert step.mismatch_max < 1e-4


def test_several_epochs_and_minibatches_take_as_many_steps_and_measure_before_the_first() -> None:
    objective = Objective(epochs=2, minibatches=3)
    trained = learner(settings=replace(SETTINGS, objective=objective))
    data = batch(policy())
    step = trained.improve(data)
    assert step.version == 1
    assert step.mismatch_max < 1e-4
    assert trained._optimisers["improve"].steps == 6
    again = learner(settings=replace(SETTINGS, objective=objective))
    again.improve(data)
    assert_same(trained, again)


def test_a_minibatch_has_a_gradient_as_large_as_the_whole_batchs() -> None:
    still = replace(SETTINGS, improvement=Optimisation(learning_rate=1e-9))
    one = credited(prompt(6), [10, 11], policy=policy(), credit=0.5)
    whole = learner(settings=still).improve(Batch(samples=(one, one)))
    parts = learner(settings=replace(still, objective=Objective(minibatches=2))).improve(Batch(samples=(one, one)))
    assert parts.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)


def test_log_probabilities_are_those_of_the_tempered_distribution_that_was_sampled() -> None:
    before = policy()
    plain = credited(prompt(6), [10, 11], policy=before, credit=1)
    ids = plain.sample.token_ids
    with torch.no_grad():
        tempered = (flat_logprobs(before, ids) / 2).log_softmax(-1)
    chosen = tempered.gather(-1, torch.from_numpy(ids[1:, None]).long())[:, 0].numpy()
    logprobs = np.where(plain.sample.loss_mask, np.concatenate([[0], chosen]), 0).astype(np.float32)
    data = Batch(samples=(replace(plain, sample=replace(plain.sample, logprobs=logprobs)),))
    step = learner(settings=replace(SETTINGS, objective=Objective(temperature=2.0))).improve(data)
    assert step.mismatch_max < 1e-4
    with pytest.raises(InvariantError, match="disagree"):
        learner().improve(data)


def from_another(answer: list[int], *, factor: float, before: Policy, credit: float = 1.0) -> CreditedSample:
    """As sampled by an engine that gave each token 1 / `factor` of the probability that the learner gives it."""
    found = credited(prompt(6), answer, policy=before, credit=credit)
    shift = np.where(found.sample.loss_mask, -np.log(factor), 0).astype(np.float32)
    return replace(found, sample=replace(found.sample, logprobs=found.sample.logprobs + shift))


APART = replace(SETTINGS, bounds=Bounds(mean=9, token=9))


def correcting(correction: Correction, **more: float | int) -> GradientLearner:
    objective = replace(Objective(), correction=correction, **more)
    return learner(settings=replace(APART, objective=objective))


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_where_engine_and_learner_agree_a_correction_changes_nothing(correction: Correction) -> None:
    data = batch(policy())
    plain, corrected = learner(), correcting(correction, correction_low=0.99, correction_high=1.01)
    a, b = plain.improve(data), corrected.improve(data)
    assert (a.effective, b.effective) == pytest.approx((1.0, 1.0), abs=1e-4)
    assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-3)


@pytest.mark.parametrize(
    ("correction", "factor", "weight"),
    [
        ("token_truncated", 1.5, 1.5),
        ("token_truncated", 4.0, 2.0),
        ("token_masked", 4.0, 4.0),
        ("token_masked", 6.0, 0.0),
        ("token_masked", 0.4, 0.0),
        ("sequence_truncated", 1.2, 1.44),
        ("sequence_truncated", 4.0, 2.0),
        ("sequence_masked", 1.5, 2.25),
        ("sequence_masked", 1.8, 0.0),
        ("geometric_mask", 1.001, 1.001),
        ("geometric_mask", 1.01, 0.0),
        ("recomputed", 1.5, 1.0),
        ("recomputed", 9.0, 1.0),
    ],
)
def test_what_another_policy_sampled_is_weighed(correction: Correction, factor: float, weight: float) -> None:
    before = policy()
    plain = learner().improve(Batch(samples=(credited(prompt(6), [10, 11], policy=before, credit=1),)))
    step = correcting(correction).improve(Batch(samples=(from_another([10, 11], factor=factor, before=before),)))
    assert step.loss == pytest.approx(weight * plain.loss, rel=1e-3)
    assert step.grad_norm == pytest.approx(weight * plain.grad_norm, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("weights", "share"), [([1.0] * 4, 1.0), ([1.0, 0.0], 0.5), ([0.0, 0.0], 0.0), ([], 1.0)])
def test_equal_weights_count_fully(weights: list[float], share: float) -> None:
    survey = Survey(Agreement(version=PolicyVersion(0), bounds=Bounds()))
    survey.note_weights(torch.tensor(weights))
    assert survey.effective == pytest.approx(share)


def test_ratios_have_a_mean_and_a_deviation() -> None:
    survey = Survey(Agreement(version=PolicyVersion(0), bounds=Bounds()))
    assert (survey.ratio_mean, survey.ratio_deviation) == (1.0, 0.0)
    for ratio in (1.0, 4.0):
        survey.note_ratios(torch.tensor([ratio]).log())
    assert (survey.ratio_mean, survey.ratio_deviation) == pytest.approx((2.5, 1.5))


def test_dropped_tokens_make_a_batch_count_for_less() -> None:
    before = policy()
    samples = (from_another([10], factor=1, before=before), from_another([11], factor=9, before=before))
    assert correcting("token_masked").improve(Batch(samples=samples)).effective == pytest.approx(0.5, rel=1e-3)


def test_with_a_correction_the_clip_looks_at_what_the_update_moves_alone() -> None:
    data = Batch(samples=(from_another([10], factor=1.5, before=policy()),))
    held = learner(settings=APART).improve(data)
    assert (held.clipped, held.grad_norm) == (1.0, 0.0)
    free = correcting("token_truncated").improve(data)
    assert free.clipped == 0.0
    assert free.grad_norm > 0
    gentle = Optimisation(learning_rate=1e-4, betas=(0.0, 0.95))
    objective = Objective(correction="token_truncated", epochs=20)
    moved = learner(settings=replace(APART, objective=objective, improvement=gentle))
    step = moved.improve(data)
    ids = data.samples[0].sample.token_ids
    assert np.log(1.28) < logprob(moved.policy, ids, 1) - logprob(policy(), ids, 1) < 0.6
    assert 0 < step.clipped < 1


def test_the_clip_holds_a_policy_that_has_moved() -> None:
    objective = Objective(epochs=20)
    gentle = Optimisation(learning_rate=1e-4, betas=(0.0, 0.95))  # no momentum to carry it past the clip
    trained = learner(settings=replace(SETTINGS, objective=objective, improvement=gentle))
    before = policy()
    data = Batch(samples=(credited(prompt(6), [10], policy=before, credit=1),))
    step = trained.improve(data)
    ids = data.samples[0].sample.token_ids
    assert step.clipped > 0.5
    moved = logprob(trained.policy, ids, 1) - logprob(before, ids, 1)
    assert np.log(1.28) < moved < 0.6


def test_a_kl_term_pulls_back_to_the_first_policy() -> None:
    moved: dict[float, float] = {}
    slow = Optimisation(learning_rate=1e-5)
    for coefficient in (0.0, 10.0):
        objective = Objective(kl_coefficient=coefficient, epochs=1)
        trained = learner(settings=replace(SETTINGS, improvement=slow, objective=objective))
        before = policy()
        data = Batch(samples=(credited(prompt(6), [10], policy=before, credit=1),))
        for _ in range(20):
            trained.improve(data)
        ids = data.samples[0].sample.token_ids
        moved[coefficient] = logprob(trained.policy, ids, 1) - logprob(before, ids, 1)
    assert 0 < moved[10.0] < moved[0.0] / 2


def test_an_entropy_bonus_flattens() -> None:
    slow = Optimisation(learning_rate=1e-5)
    trained = learner(settings=replace(SETTINGS, improvement=slow, objective=Objective(entropy_coefficient=1.0)))
    one = credited(prompt(6), [10], policy=policy(), credit=1e-6)
    data = Batch(samples=(replace(one, weights=one.sample.loss_mask.astype(np.float32)),))
    first = trained.improve(data).entropy
    trained._settings = replace(trained._settings, bounds=Bounds(mean=9, token=9))
    assert trained.improve(data).entropy > first


# ── imitation ─────────────────────────────────────────────────────────────────


def test_imitation_learns_what_it_is_shown() -> None:
    trained = learner(settings=replace(SETTINGS, imitation=Optimisation(learning_rate=1e-2)))
    data = Batch(samples=(credited(prompt(6), [10, 11, 1]), credited(prompt(8), [20, 1])))
    losses = [trained.imitate(data).loss for _ in range(40)]
    assert losses[-1] < 0.05 < losses[0]


def test_a_token_of_weight_zero_is_not_imitated() -> None:
    trained = learner()
    one = credited(prompt(6), [10])
    step = trained.imitate(Batch(samples=(replace(one, weights=np.zeros_like(one.weights)),)))
    assert step.loss == 0.0
    assert step.grad_norm == 0.0


# ── the alignment guard ───────────────────────────────────────────────────────


def test_wrong_log_probabilities_stop_the_run_before_the_step_and_name_the_sample() -> None:
    trained = learner()
    data = batch(policy())
    wrong = data.samples[3]
    logprobs = wrong.sample.logprobs - 0.5 * wrong.sample.loss_mask.astype(np.float32)
    bad = replace(wrong, sample=replace(wrong.sample, logprobs=logprobs))
    before = weights(trained)
    with pytest.raises(InvariantError, match=r"disagree at version 0.* in sample 3 "):
        trained.improve(Batch(samples=(*data.samples[:3], bad, *data.samples[4:])))
    assert all(torch.equal(v, before[k]) for k, v in weights(trained).items())


def test_log_probabilities_of_another_policy_stop_the_run_also_where_several_steps_follow() -> None:
    trained = learner(settings=replace(SETTINGS, objective=Objective(minibatches=2)))
    before = weights(trained)
    with pytest.raises(InvariantError, match="disagree"):
        trained.improve(batch(policy(seed=5)))
    assert all(torch.equal(v, before[k]) for k, v in weights(trained).items())


def test_tokens_of_an_older_version_are_not_compared() -> None:
    trained = learner()
    trained.improve(batch(policy()))
    step = trained.improve(batch(policy(seed=5), version=0))
    assert step.mismatch_max == 0.0


@pytest.mark.parametrize("version", [-1, 1])
def test_a_version_that_never_was_stops_the_run(version: int) -> None:
    with pytest.raises(InvariantError, match=r"sample 0 .*versions"):
        learner().improve(Batch(samples=(credited(prompt(4), [9], policy=policy(), version=version),)))


def test_an_image_without_its_placeholder_stops_the_run() -> None:
    seeing = learner(settings=replace(SETTINGS, placeholder_id=50))
    one = credited(prompt(4), [9], policy=policy())
    one = replace(one, sample=replace(one.sample, images=(ImageId("a"),)))
    with pytest.raises(InvariantError, match="0 image placeholders but 1 images"):
        seeing.imitate(Batch(samples=(one,)))


def test_a_placeholder_in_the_answer_stops_the_run() -> None:
    seeing = learner(settings=replace(SETTINGS, placeholder_id=50))
    one = credited(prompt(4), [9, 50], policy=policy())
    one = replace(one, sample=replace(one.sample, images=(ImageId("a"),)))
    with pytest.raises(InvariantError, match="after the first sampled token"):
        seeing.imitate(Batch(samples=(one,)))


def test_a_token_that_the_model_does_not_know_stops_the_run() -> None:
    for prompted, answer in (([61], [9]), ([9], [99])):
        one = credited(Prompt(token_ids=np.array(prompted, np.int32), images=()), answer)
        with pytest.raises(InvariantError, match=r"holds token \d+, and the learner's vocabulary has 61: the engine"):
            learner().improve(Batch(samples=(one,)))


def test_a_credit_that_is_not_finite_stops_the_run() -> None:
    one = credited(prompt(4), [9], policy=policy(), credit=1.0)
    bad = replace(one, positive=np.where(one.positive > 0, np.inf, 0).astype(np.float32))
    trained = learner()
    before = weights(trained)
    with pytest.raises(InvariantError, match="loss is -inf"):
        trained.improve(Batch(samples=(bad,)))
    assert all(torch.equal(v, before[k]) for k, v in weights(trained).items())


# ── checkpoints ───────────────────────────────────────────────────────────────


def run(trained: GradientLearner, steps: range) -> None:
    """Imitation first, then improvement on batches that no version of this policy sampled exactly."""
    for step in steps:
        if step < 2:
            trained.imitate(batch(policy(), seed=step))
        else:
            trained.improve(batch(policy(), seed=step, version=0))


RESUMED = replace(
    SETTINGS,
    improvement=Optimisation(learning_rate=1e-3, warmup_steps=3, schedule="cosine", steps=10, weight_decay=0.1),
    objective=Objective(kl_coefficient=0.1, minibatches=2),
)


@pytest.mark.parametrize("cut", [1, 3])
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(tmp_path: Path, cut: int) -> None:
    straight = learner(settings=RESUMED)
    run(straight, range(6))
    first = learner(settings=RESUMED)
    run(first, range(cut))
    first.save(tmp_path / "checkpoint")
    second = learner(policy(seed=9), settings=RESUMED)
    second.load(tmp_path / "checkpoint")
    assert_same(first, second)
    run(second, range(cut, 6))
    assert_same(straight, second)


def test_a_checkpoint_reads_as_a_model(tmp_path: Path) -> None:
    trained = learner()
    trained.improve(batch(policy()))
    trained.save(tmp_path / "checkpoint")
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint")
    ours = weights(trained)
    assert all(torch.equal(v, ours[k]) for k, v in read.state_dict().items())


def test_a_processor_is_saved_beside_the_model(tmp_path: Path) -> None:
    trained = GradientLearner(
        policy=policy(), settings=SETTINGS, save_processor=lambda p: (p / "processor.json").touch()
    )
    trained.save(tmp_path / "checkpoint")
    trained.save(tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint" / "processor.json").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_what_is_no_checkpoint_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint"):
        learner().load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no learner's checkpoint"):
        learner().load(tmp_path / "empty")


# ── schedules ─────────────────────────────────────────────────────────────────


def test_golden_learning_rates() -> None:
    plan = Optimisation(learning_rate=1.0, warmup_steps=4, schedule="cosine", steps=12, final_share=0.2)
    assert [plan.rate(s) for s in (0, 1, 3, 4, 8, 12, 99)] == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.6, 0.2, 0.2])
    straight = replace(plan, schedule="linear")
    assert [straight.rate(s) for s in (0, 3, 4, 6, 8, 12, 99)] == pytest.approx([0.25, 1.0, 1.0, 0.8, 0.6, 0.2, 0.2])
    assert Optimisation(learning_rate=3.0).rate(10**6) == 3.0


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 200), st.sampled_from(("linear", "cosine")))
def test_a_learning_rate_is_positive_and_at_most_the_full_one(
    warmup: int, descent: int, step: int, schedule: Literal["linear", "cosine"]
) -> None:
    plan = Optimisation(learning_rate=1.0, warmup_steps=warmup, schedule=schedule, steps=warmup + descent)
    assert 0 < plan.rate(step) <= 1.0
