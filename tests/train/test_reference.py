"""References that follow the policy they were made of."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cairn.data.action import Click, Point
from cairn.data.sample import Batch
from cairn.models.adapters import Adaptation, adapt
from cairn.models.policy import Policy
from cairn.models.vision.families import Family
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner
from cairn.train.objective import Objective
from cairn.train.reference import Following, Reference
from tiny_policy import batch, credited, policy
from tiny_vision import answered, looked_at, mind, screen
from train.test_learner import SETTINGS, assert_same, learner, weights

BOTH = pytest.mark.parametrize("adapted", [False, True])


def made(*, adapted: bool) -> Policy:
    own = policy()
    if adapted:
        adapt(own.model, Adaptation(rank=2, alpha=4.0))
    return own


def held(reference: Reference) -> list[float]:
    return [float(own.detach().double().mean()) for own, _ in reference._pairs()]


def move(own: Policy, by: float) -> None:
    for weight in own.model.parameters():
        weight.data += by if weight.requires_grad else 0.0


@BOTH
def test_by_default_a_reference_stays(*, adapted: bool) -> None:
    own = made(adapted=adapted)
    reference = Reference(own)
    before = held(reference)
    move(own, 1.0)
    for _ in range(5):
        reference.follow(Following())
    assert held(reference) == before


@BOTH
def test_a_following_reference_keeps_its_share_at_every_update(*, adapted: bool) -> None:
    own = made(adapted=adapted)
    reference = Reference(own)
    before = held(reference)
    move(own, 1.0)
    for _ in range(3):
        reference.follow(Following(kept=0.75))
    assert held(reference) == pytest.approx([value + 1 - 0.75**3 for value in before], abs=1e-5)


@BOTH
def test_a_refreshed_reference_becomes_the_policy_after_so_many_updates(*, adapted: bool) -> None:
    own = made(adapted=adapted)
    reference = Reference(own)
    before = held(reference)
    ages: list[tuple[int, bool]] = []
    for _ in range(5):
        move(own, 1.0)
        reference.follow(Following(every=2))
        ages.append((reference.age, held(reference) == before))
    assert ages == [(1, True), (0, False), (1, False), (0, False), (1, False)]
    assert held(reference) == pytest.approx([value + 4 for value in before], abs=1e-4)


@pytest.mark.parametrize("following", [Following(kept=0.5), Following(every=2)])
def test_a_learner_resumes_with_a_reference_that_has_moved(tmp_path: Path, following: Following) -> None:
    settings = replace(SETTINGS, objective=Objective(kl_coefficient=0.5), following=following)

    def run(trained: GradientLearner, steps: range) -> None:
        for step in steps:
            trained.improve(batch(policy(), seed=step, version=0))

    straight, first = learner(settings=settings), learner(settings=settings)
    run(straight, range(6))
    run(first, range(3))
    first.save(tmp_path / "saved")
    second = learner(policy(seed=9), settings=settings)
    second.load(tmp_path / "saved")
    run(second, range(3, 6))
    assert_same(straight, second)


def test_the_reference_follows_after_every_update_of_reinforcement_and_none_of_imitation() -> None:
    settings = replace(SETTINGS, objective=Objective(kl_coefficient=1.0), following=Following(kept=0.75))
    trained = learner(settings=settings)
    expected = weights(trained)
    for step in range(4):
        if step == 2:
            trained.imitate(batch(policy(), seed=step))
            continue
        trained.improve(batch(policy(), seed=step, version=0))
        for name, now in weights(trained).items():
            expected[name].lerp_(now, 0.25)
    assert trained._reference is not None
    held = [own for own, _ in trained._reference._pairs()]
    named = [expected[name] for name, _ in trained.policy.model.named_parameters()]
    for own, wanted in zip(held, named, strict=True):
        torch.testing.assert_close(own, wanted, atol=1e-6, rtol=1e-5)


def test_a_reference_looks_at_images_only_where_its_scores_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    own = mind(Family.QWEN2_5_VL)
    prompt = answered(own, [], screen(1), Click(target=Point(x=0.3, y=0.4))).prompt
    data = Batch(samples=tuple(credited(prompt, [50 + i, 60], credit=i - 0.5) for i in range(2)))
    settings = replace(
        SETTINGS,
        objective=Objective(kl_coefficient=0.1),
        bounds=Bounds(mean=99, token=99),
        placeholder_id=own.eyes.placeholder_id,
        image_tokens=own.eyes.tokens,
    )
    trained = learner(own.policy, settings)
    looked = looked_at(own.eyes, monkeypatch)
    trained.improve(data)
    assert looked == 2 * list(prompt.images)  # the policy's eyes, and the reference's
    looked.clear()
    trained.imitate(data)
    assert looked == list(prompt.images)
