"""A batch that an update refuses is kept, and nothing is learned from it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from cairn.data.ids import ImageId
from cairn.data.sample import Batch, CreditedSample, Preference
from cairn.errors import InvariantError
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner, Settings
from cairn.train.optimisation import Optimisation
from cairn.train.refused import keep_refused
from tiny_policy import batch, credited, policy, prompt

PLAIN = Optimisation(learning_rate=1e-3)


def learner(folder: Path) -> GradientLearner:
    wanted = Settings(imitation=PLAIN, improvement=PLAIN, bounds=Bounds(mean=1e-3, token=1e-3), refused=folder)
    return GradientLearner(policy=policy(), settings=wanted)


def with_credit(value: float) -> CreditedSample:
    one = credited(prompt(4), [9], policy=policy(), credit=1.0)
    return replace(one, positive=np.where(one.positive > 0, value, 0).astype(np.float32))


def with_weight(value: float) -> CreditedSample:
    one = credited(prompt(4), [9], policy=policy(), credit=1.0)
    return replace(one, weights=np.where(one.weights > 0, value, 0).astype(np.float32))


def assert_untouched(trained: GradientLearner) -> None:
    ours, theirs = trained.policy.model.state_dict(), policy().model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert trained.version == 0
    assert all(not optimiser.steps for optimiser in trained._optimisers.values())


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("update", ["imitate", "improve"])
def test_what_is_not_finite_is_kept_before_anything_moves(tmp_path: Path, update: str, value: float) -> None:
    trained = learner(tmp_path / "refused")
    bad = with_weight(value) if update == "imitate" and value == np.inf else with_credit(value)
    if update == "imitate" and np.isnan(value):
        bad = with_weight(np.inf)
    with pytest.raises(InvariantError, match=r"not finite.*nothing was learned.*update-0\.safetensors"):
        getattr(trained, update)(Batch(samples=(*batch(policy()).samples, bad)))
    assert_untouched(trained)
    with safe_open(tmp_path / "refused" / "update-0.safetensors", "numpy") as kept:
        told = kept.metadata()
        assert told["version"] == "0"
        assert "not finite" in told["why"]
        lengths = [one["tokens"] for one in json.loads(told["samples"])]
        ids = np.split(kept.get_tensor("token_ids"), np.cumsum(lengths)[:-1])
        np.testing.assert_array_equal(ids[-1], bad.sample.token_ids)
        assert kept.get_tensor("sampled").sum() == sum(s.sample.loss_mask.sum() for s in batch(policy()).samples) + 1
        own = kept.get_tensor("weights" if update == "imitate" else "positive")[-1]
        assert not np.isfinite(own)


def test_a_gradient_that_is_not_finite_is_refused_likewise(tmp_path: Path) -> None:
    trained = learner(tmp_path)
    weight = next(trained.policy.model.parameters())
    weight.register_hook(lambda gradient: gradient * np.nan)
    with pytest.raises(InvariantError, match=r"gradient's norm is nan.*update-0\.safetensors"):
        trained.improve(batch(policy()))
    assert_untouched(trained)
    assert all(p.grad is None for p in trained.policy.model.parameters())


def test_so_is_a_batch_that_another_engine_sampled_and_a_pair(tmp_path: Path) -> None:
    trained = learner(tmp_path)
    other = batch(policy(seed=5))
    with pytest.raises(InvariantError, match=r"disagree.*kept in"):
        trained.improve(other)
    with pytest.raises(InvariantError, match=r"disagree.*kept in"):
        trained.prefer([Preference(chosen=(other.samples[0].sample,), rejected=(other.samples[1].sample,))])
    assert_untouched(trained)


def test_a_kl_that_is_not_finite_is_refused_before_it_becomes_a_reward(tmp_path: Path) -> None:
    trained = learner(tmp_path)
    with torch.no_grad():
        next(trained.policy.model.parameters())[:] = np.nan
    objective = replace(trained._settings.objective, kl_coefficient=0.1, kl_in_reward=True)
    trained._settings = replace(trained._settings, objective=objective)
    with pytest.raises(InvariantError, match=r"KL to the reference.*not finite.*kept in"):
        trained.appraise([one.sample for one in batch(policy()).samples])


def test_images_are_named_by_their_hashes(tmp_path: Path) -> None:
    one = credited(prompt(4), [9])
    seen = replace(one, sample=replace(one.sample, images=(ImageId("abc"),)))
    path = keep_refused(tmp_path, [one, seen], why="a test", version=7)
    with safe_open(path, "numpy") as kept:
        assert [own["images"] for own in json.loads(kept.metadata()["samples"])] == [[], ["abc"]]
        assert "values" not in kept.keys()  # noqa: SIM118 - not a mapping
