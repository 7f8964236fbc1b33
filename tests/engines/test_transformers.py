import asyncio
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.ids import ImageId, PolicyVersion
from cairn.data.trajectory import Prompt
from cairn.engines.transformers import Gathering, TransformersEngine, Weights, sample
from cairn.errors import EngineError, InvariantError
from cairn.models.policy import Policy
from cairn.ports import Sampling
from cairn.testing.engine_contract import ENGINE_CONTRACT, EngineCheck, EngineSubject
from tiny_policy import FORBIDDEN, STOPS, VOCABULARY, flat_logprobs, llama, policy, prompt

PROMPTS = [prompt(4), prompt(9), prompt(9, seed=1), prompt(90)]


def engine(served: Policy, *, weights: Weights | None = None, gathering: Gathering | None = None) -> TransformersEngine:
    return TransformersEngine(
        policy=served, stop_ids=STOPS, version=PolicyVersion(0), weights=weights, gathering=gathering
    )


def subject(served: Policy, tested: TransformersEngine) -> EngineSubject:
    def next_logprobs(asked: Prompt, answer: np.ndarray) -> np.ndarray:
        ids = np.concatenate([asked.token_ids, answer, [0]]).astype(np.int32)
        with torch.no_grad():
            return flat_logprobs(served, ids)[-1].numpy()

    return EngineSubject(
        engine=tested,
        prompts=PROMPTS,
        next_logprobs=next_logprobs,
        stop_ids=STOPS,
        forbidden_ids=FORBIDDEN,
        tolerance=1e-4,
    )


@pytest.mark.parametrize("check", ENGINE_CONTRACT, ids=lambda c: c.__name__)
async def test_the_contract(check: EngineCheck) -> None:
    served = policy()
    tested = engine(served)
    try:
        await check(subject(served, tested))
    finally:
        await tested.close()


class CountingPolicy(Policy):
    """Counts what is computed."""

    def __init__(self, *, hold: threading.Event | None = None) -> None:
        super().__init__(model=llama(), forbidden_ids=FORBIDDEN)
        self.read: list[int] = []
        self.rows: list[int] = []
        self.hold = hold
        self.started = threading.Event()

    def _read(self, prompts, seen):
        self.read.append(len(prompts))
        self.started.set()
        if self.hold is not None:
            assert self.hold.wait(10)
        return super()._read(prompts, seen)

    def extend(self, prefix, ids):
        self.rows.append(ids.shape[0])
        return super().extend(prefix, ids)


async def ask(tested: TransformersEngine, asked: Prompt, *, seed: int, max_tokens: int = 8):
    return await tested.generate(asked, sampling=Sampling(max_tokens=max_tokens), seed=seed)


async def test_siblings_read_their_prompt_once() -> None:
    served = CountingPolicy()
    tested = engine(served)
    async with asyncio.TaskGroup() as group:
        for seed in range(16):
            group.create_task(ask(tested, PROMPTS[seed % 2], seed=seed))
    await tested.close()
    assert sum(served.read) == 2


async def test_siblings_who_come_later_read_nothing_until_the_weights_change() -> None:
    served = CountingPolicy()
    tested = engine(served)
    first = [await ask(tested, PROMPTS[0], seed=seed) for seed in range(3)]
    assert served.read == [1]
    await tested.update(PolicyVersion(1))
    again = [await ask(tested, PROMPTS[0], seed=seed) for seed in range(3)]
    await tested.close()
    assert served.read == [1, 1]
    for before, after in zip(first, again, strict=True):
        assert before.token_ids.tolist() == after.token_ids.tolist()
        np.testing.assert_array_equal(before.logprobs, after.logprobs)


async def test_finished_rows_leave_the_batch() -> None:
    served = CountingPolicy()
    tested = engine(served)
    async with asyncio.TaskGroup() as group:
        for seed in range(16):
            group.create_task(ask(tested, PROMPTS[1], seed=seed, max_tokens=1 + seed % 4))
    await tested.close()
    assert len(served.rows) == 3
    assert served.rows[0] <= 12
    assert served.rows[1] <= 8
    assert served.rows[2] <= 4


async def test_whoever_asks_during_a_batch_is_answered_in_the_next_one() -> None:
    hold = threading.Event()
    served = CountingPolicy(hold=hold)
    tested = engine(served)
    async with asyncio.TaskGroup() as group:
        group.create_task(ask(tested, PROMPTS[0], seed=0))
        assert await asyncio.to_thread(served.started.wait, 10)
        for late in PROMPTS[1:3]:
            group.create_task(ask(tested, late, seed=0))
        await asyncio.sleep(0)
        hold.set()
    await tested.close()
    assert served.read == [1, 2]


async def test_a_batch_holds_no_more_prompt_tokens_than_allowed() -> None:
    served = CountingPolicy()
    tested = engine(served, gathering=Gathering(max_prompt_tokens=20))
    async with asyncio.TaskGroup() as group:
        for asked in (PROMPTS[1], PROMPTS[1], PROMPTS[2], PROMPTS[3]):
            group.create_task(ask(tested, asked, seed=0))
    await tested.close()
    assert served.read == [2, 1]


async def test_closing_does_not_wait_for_the_batch_under_way() -> None:
    hold = threading.Event()
    served = CountingPolicy(hold=hold)
    tested = engine(served)
    asked = asyncio.ensure_future(ask(tested, PROMPTS[0], seed=0))
    assert await asyncio.to_thread(served.started.wait, 10)
    async with asyncio.timeout(5):
        await tested.close()
    with pytest.raises(EngineError, match="closed"):
        await asked
    hold.set()


@pytest.mark.parametrize("tied", [True, False])
async def test_an_update_serves_the_new_weights(*, tied: bool) -> None:
    learner, served = policy(seed=1, tied=tied), policy(tied=tied)
    tested = engine(served, weights=learner.model.state_dict)
    for version in (1, 2):  # the second time one row of the head alone has changed
        await tested.update(PolicyVersion(version))
        for check in ENGINE_CONTRACT:
            if check.__name__ in {"logprobs_equal_a_fresh_forward_pass", "greedy_takes_the_most_likely_token"}:
                await check(subject(learner, tested))
        with torch.no_grad():
            learner.model.get_parameter("lm_head.weight")[30] += 3.0
    await tested.close()


async def test_weights_that_do_not_fit_leave_the_old_version_serving() -> None:
    served = policy()
    before = {k: v.clone() for k, v in served.model.state_dict().items()}
    tested = engine(served, weights=lambda: dict(before) | {"lm_head.weight": torch.zeros(3, 3)})
    with pytest.raises(EngineError, match="lm_head"):
        await tested.update(PolicyVersion(5))
    answer = await ask(tested, PROMPTS[0], seed=0)
    assert set(answer.versions.tolist()) == {0}
    assert all(torch.equal(v, before[k]) for k, v in served.model.state_dict().items())
    await tested.close()


async def test_a_failing_model_fails_its_callers_and_no_later_ones() -> None:
    class Failing(CountingPolicy):
        def _read(self, prompts, seen):
            if not self.read:
                self.read.append(0)
                raise RuntimeError("out of memory")
            return super()._read(prompts, seen)

    tested = engine(Failing())
    results = await asyncio.wait([asyncio.ensure_future(ask(tested, p, seed=0)) for p in PROMPTS])
    errors = [t.exception() for t in results[0]]
    assert all(isinstance(e, EngineError) and "out of memory" in str(e) for e in errors)
    assert len({id(e) for e in errors}) == len(errors)
    assert (await ask(tested, PROMPTS[0], seed=0)).token_ids.shape[0] > 0
    await tested.close()


async def test_a_broken_invariant_is_not_hidden_as_an_engine_error() -> None:
    tested = engine(policy())
    image = Prompt(token_ids=PROMPTS[0].token_ids, images=(ImageId("0" * 64),))
    with pytest.raises(InvariantError, match="no way to see"):
        await ask(tested, image, seed=0)
    await tested.close()


@given(st.integers(0, 10_000), st.floats(0.0, 1.0, exclude_max=True))
def test_a_uniform_number_picks_the_token_whose_share_of_the_line_it_falls_into(seed: int, uniform: float) -> None:
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, VOCABULARY)).astype(np.float32) * 3)
    logits[0, sorted(FORBIDDEN)] = -torch.inf
    (token,), (logprob,) = sample(logits, [1.0], [uniform])
    probabilities = logits[0].double().softmax(-1).numpy()
    edges = np.concatenate([[0.0], probabilities.cumsum()])
    assert edges[token] - 1e-6 <= uniform <= edges[token + 1] + 1e-6
    assert token not in FORBIDDEN
    assert logprob == pytest.approx(float(np.log(probabilities[token])), abs=1e-4)
