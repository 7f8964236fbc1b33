"""What every Engine must do. An implementation parametrises one test over ENGINE_CONTRACT; nothing here needs torch."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32

from cairn.data.ids import PolicyVersion
from cairn.data.trajectory import Completion, Prompt
from cairn.errors import EngineError
from cairn.ports import Engine, Sampling

NextLogprobs = Callable[[Prompt, Int32[np.ndarray, " A"]], Float32[np.ndarray, " V"]]
"""Log-probabilities of the next token after a prompt and the answer so far, by a forward pass of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSubject:
    """An engine at version 0, with what a check must know of its model."""

    engine: Engine
    prompts: Sequence[Prompt]  # different ones, at least three, of at least two lengths
    next_logprobs: NextLogprobs  # at temperature 1; -inf where a token is forbidden
    stop_ids: frozenset[int]
    forbidden_ids: frozenset[int]
    tolerance: float  # of log-probabilities: rounding between batches of different shape


EngineCheck = Callable[[EngineSubject], Awaitable[None]]

_SAMPLING = Sampling(temperature=1.0, max_tokens=8)
_SEEDS = range(8)


async def every_token_has_a_logprob_and_a_version(subject: EngineSubject) -> None:
    """Ids, log-probabilities and versions are aligned, and sampling says who sampled."""
    for answer in await _answers(subject, _SAMPLING):
        assert answer.token_ids.shape == answer.logprobs.shape == answer.versions.shape
        assert (answer.versions == 0).all()
        assert (answer.logprobs <= 0).all()


async def an_answer_ends_with_a_stop_token_or_is_truncated(subject: EngineSubject) -> None:
    """A stop token is the last token and in the answer; without one the answer has all its tokens and says so."""
    for answer in await _answers(subject, _SAMPLING):
        stops = np.isin(answer.token_ids, sorted(subject.stop_ids))
        assert not stops[:-1].any()
        assert answer.truncated == (not stops[-1])
        assert len(stops) == _SAMPLING.max_tokens if answer.truncated else len(stops) <= _SAMPLING.max_tokens


async def one_token_can_be_all_that_is_asked_for(subject: EngineSubject) -> None:
    """`max_tokens` 1 gives one token."""
    answers = await _answers(subject, Sampling(max_tokens=1))
    assert all(a.token_ids.shape == (1,) for a in answers)


async def logprobs_equal_a_fresh_forward_pass(subject: EngineSubject) -> None:
    """The log-probabilities are those of the model's own distribution, token by token."""
    for (prompt, _), answer in zip(_requests(subject), await _answers(subject, _SAMPLING), strict=True):
        for at, token in enumerate(answer.token_ids):
            expected = float(subject.next_logprobs(prompt, answer.token_ids[:at])[token])
            assert abs(expected - float(answer.logprobs[at])) <= subject.tolerance, (at, expected, answer.logprobs)


async def temperature_divides_the_logits(subject: EngineSubject) -> None:
    """At temperature 2 the log-probability is that of the flattened distribution."""
    answers = await _answers(subject, Sampling(temperature=2.0, max_tokens=1))
    for (prompt, _), answer in zip(_requests(subject), answers, strict=True):
        halved = subject.next_logprobs(prompt, answer.token_ids[:0]).astype(np.float64) / 2
        expected = halved[answer.token_ids[0]] - np.log(np.exp(halved).sum())
        assert abs(expected - float(answer.logprobs[0])) <= subject.tolerance


async def greedy_takes_the_most_likely_token(subject: EngineSubject) -> None:
    """Temperature 0 is argmax, whatever the seed, with the log-probability at temperature 1."""
    for prompt in subject.prompts:
        answer = await subject.engine.generate(prompt, sampling=Sampling(temperature=0.0, max_tokens=4), seed=3)
        for at, token in enumerate(answer.token_ids):
            logprobs = subject.next_logprobs(prompt, answer.token_ids[:at])
            assert logprobs[token] >= logprobs.max() - subject.tolerance
            assert abs(float(logprobs[token] - answer.logprobs[at])) <= subject.tolerance


async def a_seed_decides_the_answer_whoever_else_asks(subject: EngineSubject) -> None:
    """One seed gives one answer, asked alone, among siblings, or among strangers; other seeds give others."""
    together = await _answers(subject, _SAMPLING)
    for (prompt, seed), answer in list(zip(_requests(subject), together, strict=True))[:: len(_SEEDS) // 2 + 1]:
        alone = await subject.engine.generate(prompt, sampling=_SAMPLING, seed=seed)
        np.testing.assert_array_equal(alone.token_ids, answer.token_ids)
        np.testing.assert_allclose(alone.logprobs, answer.logprobs, atol=subject.tolerance)
    for first in range(0, len(together), len(_SEEDS)):
        assert len({a.token_ids.tobytes() for a in together[first : first + len(_SEEDS)]}) > 1


async def tokens_are_drawn_as_often_as_they_are_likely(subject: EngineSubject) -> None:
    """Over many seeds the mean log-probability of the first token is the negative entropy, within 5 standard errors."""
    prompt = subject.prompts[0]
    logprobs = subject.next_logprobs(prompt, np.zeros(0, np.int32)).astype(np.float64)
    possible = logprobs[np.isfinite(logprobs)]
    mean = float((np.exp(possible) * possible).sum())
    variance = float((np.exp(possible) * (possible - mean) ** 2).sum())
    one = Sampling(max_tokens=1)
    draws = await _all([subject.engine.generate(prompt, sampling=one, seed=seed) for seed in range(400)])
    found = float(np.mean([d.logprobs[0] for d in draws]))
    assert abs(found - mean) <= 5 * (variance / len(draws)) ** 0.5 + subject.tolerance


async def a_forbidden_token_is_never_sampled(subject: EngineSubject) -> None:
    """Not even at a temperature that makes every token nearly as likely as any other."""
    for answer in await _answers(subject, Sampling(temperature=50.0, max_tokens=8)):
        assert not np.isin(answer.token_ids, sorted(subject.forbidden_ids)).any()


async def an_update_changes_the_version_of_later_answers(subject: EngineSubject) -> None:
    """Every answer has one version, the old until `update` returns and the new from then on."""
    before = [asyncio.ensure_future(subject.engine.generate(p, sampling=_SAMPLING, seed=0)) for p in subject.prompts]
    await subject.engine.update(PolicyVersion(7))
    after = await subject.engine.generate(subject.prompts[0], sampling=_SAMPLING, seed=0)
    assert (after.versions == 7).all()
    for answer in await _all(before):
        assert len(set(answer.versions.tolist())) == 1
        assert int(answer.versions[0]) in {0, 7}


async def a_cancelled_caller_harms_no_other(subject: EngineSubject) -> None:
    """Whoever gives up waiting leaves the others their answers."""
    gone = asyncio.ensure_future(subject.engine.generate(subject.prompts[0], sampling=_SAMPLING, seed=0))
    stays = asyncio.ensure_future(subject.engine.generate(subject.prompts[1], sampling=_SAMPLING, seed=0))
    await asyncio.sleep(0)
    gone.cancel()
    answer = await stays
    assert (answer.versions == 0).all()
    assert gone.cancelled() or (await asyncio.wait([gone])) is not None


async def closing_fails_whoever_waits(subject: EngineSubject) -> None:
    """After `close` every caller, waiting or new, gets an `EngineError`; closing twice is closing once."""
    waiting = asyncio.ensure_future(subject.engine.generate(subject.prompts[0], sampling=_SAMPLING, seed=0))
    await asyncio.sleep(0)
    await subject.engine.close()
    await subject.engine.close()
    await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), EngineError)
    late = asyncio.ensure_future(subject.engine.generate(subject.prompts[0], sampling=_SAMPLING, seed=0))
    await asyncio.wait([late])
    assert isinstance(late.exception(), EngineError)


def _requests(subject: EngineSubject) -> list[tuple[Prompt, int]]:
    return [(prompt, seed) for prompt in subject.prompts for seed in _SEEDS]


async def _answers(subject: EngineSubject, sampling: Sampling) -> list[Completion]:
    """Every prompt with every seed, all asked at once."""
    return await _all(
        [subject.engine.generate(prompt, sampling=sampling, seed=seed) for prompt, seed in _requests(subject)]
    )


async def _all(waits: Sequence[Awaitable[Completion]]) -> list[Completion]:
    async def one(wait: Awaitable[Completion]) -> Completion:
        return await wait

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(wait)) for wait in waits]
    return [task.result() for task in tasks]


ENGINE_CONTRACT: tuple[EngineCheck, ...] = (
    every_token_has_a_logprob_and_a_version,
    an_answer_ends_with_a_stop_token_or_is_truncated,
    one_token_can_be_all_that_is_asked_for,
    logprobs_equal_a_fresh_forward_pass,
    temperature_divides_the_logits,
    greedy_takes_the_most_likely_token,
    a_seed_decides_the_answer_whoever_else_asks,
    tokens_are_drawn_as_often_as_they_are_likely,
    a_forbidden_token_is_never_sampled,
    an_update_changes_the_version_of_later_answers,
    a_cancelled_caller_harms_no_other,
    closing_fails_whoever_waits,
)
