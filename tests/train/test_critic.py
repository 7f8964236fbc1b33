"""A critic: what it says, what it learns, and that the policy is none the wiser."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cairn.data.sample import Batch, CreditedSample, Targets
from cairn.errors import ConfigError, InvariantError
from cairn.models.policy import Policy
from cairn.train.critic import Critic, CriticSettings, explained
from cairn.train.examples import example
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner, Settings
from cairn.train.objective import KlEstimator, Objective
from cairn.train.optimisation import Optimisation
from cairn.train.parts import appraisal
from tiny_policy import batch, credited, flat_logprobs, llama, policy, prompt

PLAIN = Optimisation(learning_rate=1e-3)
FAST = CriticSettings(optimisation=Optimisation(learning_rate=1e-2), clip=None)
SETTINGS = Settings(imitation=PLAIN, improvement=PLAIN, critic=FAST, bounds=Bounds(mean=1e-3, token=1e-3))


def told(one: CreditedSample, returns: float, *, values: float = 0.0) -> CreditedSample:
    """The sample with the same return for each of its sampled tokens."""
    values_, returns_ = (np.where(one.sample.loss_mask, own, 0).astype(np.float32) for own in (values, returns))
    return replace(one, critic=Targets(values=values_, returns=returns_))


def critic(trained: Policy | None = None, wanted: CriticSettings = FAST, *, max_tokens: int = 2048) -> Critic:
    return Critic(policy=trained or policy(), settings=wanted, max_tokens=max_tokens)


def weights(trained: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trained.model.state_dict().items()}


def unchanged(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(before[name], after[name]) for name in before)


def data(returns: float = 1.0) -> Batch:
    return Batch(samples=tuple(told(one, returns) for one in batch(policy()).samples))


# ── what it says ──────────────────────────────────────────────────────────────


def shaken(trained: Policy) -> Critic:
    """A critic whose last layer says something."""
    found = critic(trained)
    with torch.random.fork_rng():
        torch.random.manual_seed(3)
        head = found.policy.model.get_output_embeddings()
        assert head is not None
        for weight in head.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    return found


@pytest.mark.parametrize("sharing", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_a_value_is_what_the_last_layer_says_of_the_state_before_the_token(*, sharing: bool, tied: bool) -> None:
    found = shaken(Policy(model=llama(tied=tied), sharing=sharing))
    samples = batch(policy()).samples
    said = found.values([example(i, s) for i, s in enumerate(samples)])
    for number, one in enumerate(samples):
        ids = torch.from_numpy(one.sample.token_ids[None]).long()
        with torch.no_grad():
            plain = found.policy.model(input_ids=ids).logits[0, :, 0]
        before = np.flatnonzero(one.sample.loss_mask) - 1
        np.testing.assert_allclose(said[number], plain[before].numpy(), atol=1e-4)


def test_at_first_every_value_is_0_and_the_policy_is_not_touched() -> None:
    trained = policy()
    before = weights(trained)
    found = critic(trained)
    examples = [example(i, s) for i, s in enumerate(data().samples)]
    assert all(not own.any() for own in found.values(examples).values())
    found.learn(examples, scale=1.0)
    found.optimiser.step()
    assert unchanged(before, weights(trained))
    assert trained.model.get_output_embeddings() is not found.policy.model.get_output_embeddings()


# ── what it learns ────────────────────────────────────────────────────────────


def test_it_learns_what_follows_different_prompts() -> None:
    found = critic()
    samples = tuple(
        replace(told(credited(prompt(6, seed=i), [10, 11]), float(i % 2)), weights=np.zeros(8, np.float32))
        for i in range(4)
    )
    even = tuple(replace(s, weights=(s.sample.loss_mask / 8).astype(np.float32)) for s in samples)
    examples = [example(i, s) for i, s in enumerate(even)]
    first = last = found.learn(examples, scale=1.0)
    for _ in range(60):
        found.optimiser.step()
        last = found.learn(examples, scale=1.0)
    assert first == pytest.approx(0.25, rel=1e-3)  # half of the square of 1, for every other one
    assert last < 0.02
    said = found.values(examples)
    assert [round(float(said[number].mean())) for number in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("max_tokens", [1, 20, 60])
def test_micro_batches_change_neither_its_values_nor_its_gradient(max_tokens: int) -> None:
    examples = [example(i, s) for i, s in enumerate(data().samples)]
    whole, split = shaken(policy()), shaken(policy())
    split._max_tokens = max_tokens
    said = split.values(examples)
    for number, own in whole.values(examples).items():
        np.testing.assert_allclose(own, said[number], atol=1e-5)
    assert whole.learn(examples, scale=2.0) == pytest.approx(split.learn(examples, scale=1.0), rel=1e-4)
    for one, other in zip(whole.policy.model.parameters(), split.policy.model.parameters(), strict=True):
        if one.grad is not None:  # the scale is that of the gradient, and not of what is told
            assert other.grad is not None
            torch.testing.assert_close(one.grad, 2 * other.grad, atol=2e-5, rtol=1e-3)


def test_a_value_held_by_the_clip_is_not_moved_further() -> None:
    examples = [example(0, told(credited(prompt(6), [10]), 5.0, values=-0.4))]  # it says 0, and said -0.4
    free, held = critic(), critic(wanted=replace(FAST, clip=0.2))
    free.learn(examples, scale=1.0)
    held.learn(examples, scale=1.0)
    assert free.optimiser.step()[0] > 0
    assert held.optimiser.step()[0] == 0


def test_what_no_number_is_stops_it() -> None:
    found = critic()
    with pytest.raises(InvariantError, match="critic's loss is inf"):
        found.learn([example(0, told(credited(prompt(6), [10]), np.inf))], scale=1.0)


def test_golden_explained_variance() -> None:
    one = credited(prompt(4), [9, 10])
    mask = one.sample.loss_mask
    returns = np.where(mask, 1.0, 0.0).astype(np.float32)
    returns[-1] = 0.0

    def knew(values: list[float]) -> Batch:
        known = np.zeros(mask.shape, np.float32)
        known[-2:] = values
        return Batch(samples=(replace(one, critic=Targets(values=known, returns=returns)),))

    assert explained(knew([1.0, 0.0])) == pytest.approx(1.0)
    assert explained(knew([0.0, 0.0])) == pytest.approx(0.0)
    assert explained(knew([0.0, 1.0])) == pytest.approx(-3.0)
    assert explained(knew([0.75, 0.25])) == pytest.approx(0.75)
    assert explained(Batch(samples=(one,))) == 0.0


# ── in the learner ────────────────────────────────────────────────────────────


def learner(trained: Policy | None = None, wanted: Settings = SETTINGS) -> GradientLearner:
    return GradientLearner(policy=trained or policy(), settings=wanted)


def test_a_learner_says_its_critics_values_and_learns_them_beside_the_policy() -> None:
    trained = learner()
    samples = [one.sample for one in data().samples]
    assert all(not own.values.any() for own in trained.appraise(samples))
    step = trained.improve(data())
    halves = sum(float(one.weights.sum()) for one in data().samples) / 2  # of the square of 1, for every token
    assert (step.value_loss, step.explained) == pytest.approx((halves, 0.0), rel=1e-3)
    for one, own in zip(samples, trained.appraise(samples), strict=True):
        assert own.values[one.loss_mask].all()
        assert not own.values[~one.loss_mask].any()


def test_the_policys_step_is_the_same_with_a_critic_as_without() -> None:
    with_one, without = learner(), learner(wanted=replace(SETTINGS, critic=None))
    a, b = with_one.improve(data()), without.improve(batch(policy()))
    assert (a.loss, a.grad_norm) == (b.loss, b.grad_norm)
    assert unchanged(weights(with_one.policy), weights(without.policy))


def test_a_critic_may_learn_alone_at_first() -> None:
    trained = learner(wanted=replace(SETTINGS, critic=replace(FAST, alone=1)))
    before = weights(trained.policy)
    graphs: list[bool] = []
    words = trained.policy.model.get_input_embeddings()

    def noted(called: torch.nn.Module, _ids: object) -> None:
        if called is words:  # and not the critic's, which is a copy and has learned to tell, too
            graphs.append(torch.is_grad_enabled())

    words.register_forward_pre_hook(noted)
    step = trained.improve(data())
    assert graphs  # scored for the guard, without the memory of a backward pass
    assert not any(graphs)
    assert step.grad_norm == 0.0
    assert unchanged(before, weights(trained.policy))
    assert step.mismatch_max < 1e-4  # the guard looks all the same
    later = Batch(samples=tuple(told(s, 1.0) for s in batch(policy(), version=1).samples))
    assert trained.improve(later).grad_norm > 0
    assert not unchanged(before, weights(trained.policy))


def run(trained: GradientLearner, steps: range) -> None:
    for step in steps:
        found = batch(policy(), seed=step, version=0)
        trained.improve(Batch(samples=tuple(told(s, float(step)) for s in found.samples)))


@pytest.mark.parametrize("cut", [1, 3])
def test_a_resumed_critic_is_bit_equal_to_one_that_never_stopped(tmp_path: Path, cut: int) -> None:
    wanted = replace(SETTINGS, objective=Objective(minibatches=2, epochs=2), bounds=Bounds(mean=9, token=9))
    straight, first, second = learner(wanted=wanted), learner(wanted=wanted), learner(policy(seed=9), wanted)
    run(straight, range(4))
    run(first, range(cut))
    first.save(tmp_path / "checkpoint")
    second.load(tmp_path / "checkpoint")
    run(second, range(cut, 4))
    assert unchanged(weights(straight.policy), weights(second.policy))
    samples = [one.sample for one in data().samples]
    for one, other in zip(straight.appraise(samples), second.appraise(samples), strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_checkpoint_with_a_critic_serves_a_run_without_one_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    trained = learner()
    trained.improve(data())
    trained.save(tmp_path / "checkpoint")
    without = learner(wanted=replace(SETTINGS, critic=None))
    without.load(tmp_path / "checkpoint")
    assert unchanged(weights(trained.policy), weights(without.policy))
    (tmp_path / "checkpoint" / "critic.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="damaged critic"):
        learner().load(tmp_path / "checkpoint")


# ── the KL in the reward ──────────────────────────────────────────────────────


ESTIMATES = {"k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: np.minimum(np.exp(-d) + d - 1, 10)}


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_learner_says_how_far_it_has_moved_from_the_reference(estimator: KlEstimator) -> None:
    objective = Objective(kl_coefficient=0.1, kl_in_reward=True, kl_estimator=estimator)
    trained = learner(wanted=replace(SETTINGS, critic=None, objective=objective, bounds=Bounds(mean=9, token=9)))
    samples = [one.sample for one in data().samples]
    assert all(np.abs(own.divergence).max() < 1e-6 for own in trained.appraise(samples))
    plain = learner(wanted=replace(SETTINGS, critic=None))
    a, b = trained.improve(batch(policy())), plain.improve(batch(policy()))
    assert (a.loss, a.grad_norm) == (b.loss, b.grad_norm)  # it is no cost of its own
    before = policy()
    for one, own in zip(samples, trained.appraise(samples), strict=True):
        following = torch.from_numpy(one.token_ids[1:, None]).long()
        with torch.no_grad():
            now, then = (flat_logprobs(which, one.token_ids) for which in (trained.policy, before))
        apart = (now - then).gather(-1, following)[:, 0].numpy()[one.loss_mask[1:]]
        np.testing.assert_allclose(own.divergence[one.loss_mask], ESTIMATES[estimator](apart), atol=1e-4)
        assert not own.divergence[~one.loss_mask].any()


def test_what_is_found_of_a_sample_stands_at_its_sampled_tokens_in_their_order() -> None:
    one = credited(prompt(4), [9, 10, 11], policy=policy())
    mask = one.sample.loss_mask
    found = appraisal(one, 7, {7: torch.tensor([1.0, 2.0, 3.0])}, {7: np.array([4.0, 5.0, 6.0], np.float32)})
    assert found.divergence[mask].tolist() == [1.0, 2.0, 3.0]
    assert found.values[mask].tolist() == [4.0, 5.0, 6.0]
    assert not found.divergence[~mask].any()
    assert not found.values[~mask].any()
