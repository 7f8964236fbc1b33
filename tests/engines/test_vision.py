"""The engine's contract with real vision-language classes, and the learner's agreement with it over several turns."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch

from cairn.app.sight import require_sight
from cairn.data.action import Click, Point
from cairn.data.ids import PolicyVersion
from cairn.data.sample import Batch, CreditedSample, Sample
from cairn.data.trajectory import Completion, Prompt, Turn
from cairn.engines.transformers import TransformersEngine
from cairn.errors import InvariantError, SetupError
from cairn.models.vision.families import Family
from cairn.ports import Sampling
from cairn.testing.engine_contract import ENGINE_CONTRACT, EngineCheck, EngineSubject
from cairn.train.guard import Bounds
from cairn.train.learner import GradientLearner, Settings
from cairn.train.objective import Objective
from cairn.train.optimisation import Optimisation
from tiny_vision import BLOBS, Mind, answered, mind, screen

FAMILIES = (Family.QWEN2_5_VL, Family.QWEN3_VL, Family.IDEFICS3)
each_family = pytest.mark.parametrize("family", FAMILIES)
STOPS = frozenset(range(100, 160))  # of so many tokens one soon ends an answer
PLAIN = Optimisation(learning_rate=1e-3)


def prompts(own: Mind) -> list[Prompt]:
    first = answered(own, [], screen(1), Click(Point(0.5, 0.25)))
    second = answered(own, [first], screen(2), Click(Point(0.1, 0.9)))
    return [
        own.codec.prompt("press ok", [], screen(1)),
        own.codec.prompt("press ok", [first], screen(2)),
        own.codec.prompt("press ok", [first, second], screen(3, size=(210, 120))),
    ]


def next_logprobs(own: Mind, asked: Prompt, answer: np.ndarray) -> np.ndarray:
    """By one pass over prompt and answer, without a cache."""
    last = np.concatenate([answer, [70]]).astype(np.int32)
    with torch.no_grad():
        return own.policy.answer_logits([asked], [last])[0, -1].log_softmax(-1).numpy()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("check", ENGINE_CONTRACT, ids=lambda c: c.__name__)
@each_family
async def test_the_contract(family: Family, check: EngineCheck) -> None:
    own = mind(family)
    tested = TransformersEngine(policy=own.policy, stop_ids=STOPS, version=PolicyVersion(0))
    subject = EngineSubject(
        engine=tested,
        prompts=prompts(own),
        next_logprobs=lambda asked, answer: next_logprobs(own, asked, answer),
        stop_ids=STOPS,
        forbidden_ids=own.codec.forbidden_ids,
        tolerance=5e-4,
    )
    try:
        await check(subject)
    finally:
        await tested.close()


async def sampled(own: Mind, *, siblings: int = 2) -> list[list[Turn]]:
    """Trajectories of three turns each, sampled by an engine from this very policy."""
    engine = TransformersEngine(policy=own.policy, stop_ids=own.codec.stop_ids, version=PolicyVersion(0))

    async def one(sibling: int) -> list[Turn]:
        turns: list[Turn] = []
        for number in range(3):
            seen = screen(number if number == 0 else 10 * sibling + number)
            prompt = own.codec.prompt("press ok", turns, seen)
            done = await engine.generate(prompt, sampling=Sampling(max_tokens=6), seed=17 * sibling + number)
            turns.append(Turn(observation=seen, prompt=prompt, completion=done, action=Click(Point(0.5, 0.5))))
        return turns

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(sibling)) for sibling in range(siblings)]
    await engine.close()
    return [task.result() for task in tasks]


def credited(prompt: Prompt, done: Completion, *, credit: float) -> CreditedSample:
    ids = np.concatenate([prompt.token_ids, done.token_ids])
    mask = np.arange(len(ids)) >= len(prompt.token_ids)
    before = np.zeros(len(prompt.token_ids), np.float32)
    sample = Sample(
        token_ids=ids,
        loss_mask=mask,
        logprobs=np.concatenate([before, done.logprobs]),
        versions=np.concatenate([before - 1, done.versions]).astype(np.int32),
        images=prompt.images,
    )
    share = mask.astype(np.float32) / np.float32(mask.sum())
    return CreditedSample(
        sample=sample, positive=share * max(credit, 0.0), negative=share * min(credit, 0.0), weights=share * abs(credit)
    )


def merged(turns: list[Turn], *, credit: float) -> CreditedSample:
    """A trajectory whose turns extend each other, as one sample."""
    ids, sampled, logprobs = [], [], []
    for turn in turns:
        fresh = turn.prompt.token_ids[len(ids) :]
        assert turn.prompt.token_ids[: len(ids)].tolist() == ids
        ids += [*fresh.tolist(), *turn.completion.token_ids.tolist()]
        sampled += [False] * len(fresh) + [True] * len(turn.completion.token_ids)
        logprobs += [0.0] * len(fresh) + turn.completion.logprobs.tolist()
    mask = np.array(sampled)
    share = mask.astype(np.float32) / np.float32(mask.sum())
    sample = Sample(
        token_ids=np.array(ids, np.int32),
        loss_mask=mask,
        logprobs=np.array(logprobs, np.float32),
        versions=np.where(mask, 0, -1).astype(np.int32),
        images=turns[-1].prompt.images,
    )
    return CreditedSample(
        sample=sample, positive=share * max(credit, 0.0), negative=share * min(credit, 0.0), weights=share * abs(credit)
    )


def learner(own: Mind, *, max_tokens: int = 2048, objective: Objective | None = None) -> GradientLearner:
    settings = Settings(
        imitation=PLAIN,
        improvement=PLAIN,
        objective=objective or Objective(),
        bounds=Bounds(mean=1e-4, token=1e-3),
        max_tokens=max_tokens,
        placeholder_id=own.processor.placeholder_id,
        image_tokens=own.eyes.tokens,
    )
    return GradientLearner(policy=own.policy, settings=settings)


@each_family
async def test_the_learner_agrees_with_the_engine_over_turns_and_images(family: Family) -> None:
    own = mind(family)
    trajectories = await sampled(own)
    samples = [
        credited(turn.prompt, turn.completion, credit=1.0 if sibling else -1.0)
        for sibling, turns in enumerate(trajectories)
        for turn in turns
    ]
    step = learner(own).improve(Batch(samples=tuple(samples)))
    assert step.mismatch_max < 1e-3
    assert step.grad_norm > 0


@each_family
async def test_merged_turns_agree_too(family: Family) -> None:
    """Screenshots between the answers of one sample."""
    own = mind(family)
    samples = [merged(turns, credit=1.0 - 2.0 * (i % 2)) for i, turns in enumerate(await sampled(own, siblings=4))]
    assert all(len(each.sample.images) == 3 for each in samples)
    assert learner(own).improve(Batch(samples=tuple(samples))).mismatch_max < 1e-3


@each_family
async def test_micro_batches_that_share_images_change_no_gradient(family: Family) -> None:
    """A budget of one sample at a time, where every image is shown in several samples."""
    steps = []
    for budget in (100_000, 1):
        own = mind(family)
        trajectories = await sampled(own)
        samples = [credited(t.prompt, t.completion, credit=i - 0.5) for i, ts in enumerate(trajectories) for t in ts]
        steps.append(learner(own, max_tokens=budget).improve(Batch(samples=tuple(samples))))
    assert steps[0].grad_norm == pytest.approx(steps[1].grad_norm, rel=1e-3)


@each_family
async def test_another_screenshot_than_was_shown_stops_the_learner(family: Family) -> None:
    own = mind(family)
    ((turn, *_),) = await sampled(own, siblings=1)
    swapped = replace(turn.prompt, images=(screen(99).image,))
    with pytest.raises(InvariantError, match="engine and learner disagree"):
        learner(own).improve(Batch(samples=(credited(swapped, turn.completion, credit=1.0),)))


@each_family
async def test_an_image_without_its_placeholders_stops_the_learner(family: Family) -> None:
    own = mind(family)
    ((turn, *_),) = await sampled(own, siblings=1)
    doubled = replace(turn.prompt, images=turn.prompt.images * 2)
    with pytest.raises(InvariantError, match=r"image placeholders, but its 2 images take"):
        learner(own).improve(Batch(samples=(credited(doubled, turn.completion, credit=1.0),)))


@each_family
async def test_several_steps_and_a_reference_see_each_their_own_way(family: Family) -> None:
    own = mind(family)
    trajectories = await sampled(own)
    samples = [credited(t.prompt, t.completion, credit=i - 0.5) for i, ts in enumerate(trajectories) for t in ts]
    objective = Objective(kl_coefficient=0.1, epochs=2, minibatches=2)
    trained = learner(own, objective=objective)
    assert trained.improve(Batch(samples=tuple(samples))).mismatch_max < 1e-3
    assert trained.version == 1


@each_family
def test_a_policy_that_sees_passes_the_probe_and_a_blind_one_does_not(family: Family) -> None:
    own = mind(family)
    require_sight(own.policy, codec=own.codec, blobs=BLOBS)
    for name, parameter in own.policy.model.named_parameters():
        if "visual" in name or "vision" in name or "connector" in name:
            torch.nn.init.zeros_(parameter)
    with pytest.raises(SetupError, match="does not see"):
        require_sight(own.policy, codec=own.codec, blobs=BLOBS)


async def test_an_engine_of_its_own_takes_over_all_weights_vision_included() -> None:
    own = mind(Family.QWEN2_5_VL)
    served = own.policy.copy(dtype=torch.float32)
    engine = TransformersEngine(
        policy=served, stop_ids=own.codec.stop_ids, version=PolicyVersion(0), weights=own.policy.model.state_dict
    )
    asked = own.codec.prompt("press ok", [], screen(1))
    before = await engine.generate(asked, sampling=Sampling(max_tokens=4), seed=0)
    with torch.no_grad():
        own.policy.model.get_parameter("model.visual.merger.mlp.2.weight").mul_(3.0)
    await engine.update(PolicyVersion(1))
    after = await engine.generate(asked, sampling=Sampling(max_tokens=1), seed=0)
    await engine.close()
    wanted = next_logprobs(own, asked, np.zeros(0, np.int32))[after.token_ids[0]]
    assert float(after.logprobs[0]) == pytest.approx(float(wanted), abs=5e-4)
    assert float(before.logprobs[0]) != pytest.approx(float(after.logprobs[0]), abs=1e-3)
