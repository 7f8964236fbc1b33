"""The policy in process, by Hugging Face `transformers`: whatever is asked at one time is computed as one batch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cairn.data.ids import PolicyVersion
from cairn.data.trajectory import Completion, Prompt
from cairn.engines.prefixes import PrefixCache
from cairn.errors import CairnError, EngineError, boundary
from cairn.models.policy import Policy
from cairn.models.prefix import Prefix
from cairn.ports import Sampling

Weights = Callable[[], Mapping[str, Tensor]]
"""The learner's newest weights by name, as `state_dict` gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """When a batch starts: once no caller has come for `quiet` seconds, at the latest `limit` after the first.

    A batch costs little more than one of its rows, so waiting a moment for the others pays; while one batch computes,
    the next gathers by itself. A batch takes callers in order of arrival while its different prompts hold at most
    `max_prompt_tokens` tokens.
    """

    quiet: float = 0.002
    limit: float = 0.02
    max_rows: int = 256
    max_prompt_tokens: int = 16_384
    max_kept_tokens: int = 8192  # of prompts that stay in memory for callers who come later with the same ones


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    prompt: Prompt
    sampling: Sampling
    seed: int
    reply: asyncio.Future[Completion]


@dataclass(slots=True, kw_only=True)
class _Row:
    """One answer under way, in the worker thread."""

    request: _Request
    noise: np.random.Generator
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    stopped: bool = False

    @property
    def finished(self) -> bool:
        return self.stopped or len(self.token_ids) >= self.request.sampling.max_tokens


class TransformersEngine:
    """Samples from `policy` in one worker thread, so that the event loop (and the browsers) go on meanwhile.

    A row's tokens depend on its seed and its logits alone, never on its batch mates (logits may differ by rounding
    where batches differ). Logits are masked by the policy, so `forbidden_ids` have probability 0 here as in the
    learner. `weights` is read by `update`; without it the policy shares the learner's module, and nothing is copied:
    then no answer may be under way while the learner steps.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        stop_ids: frozenset[int],
        version: PolicyVersion,
        weights: Weights | None = None,
        gathering: Gathering | None = None,
    ) -> None:
        """Serve `policy` as `version`; compute starts with the first call to `generate`."""
        self._policy = policy
        self._stop_ids = stop_ids
        self._version = version
        self._weights = weights
        self._gathering = gathering or Gathering()
        self._prefixes = PrefixCache(policy, max_tokens=self._gathering.max_kept_tokens)
        self._waiting: list[_Request] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._computing = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._closed = False

    async def generate(self, prompt: Prompt, *, sampling: Sampling, seed: int) -> Completion:
        if self._closed:
            raise EngineError("the engine is closed")
        if sampling.max_tokens < 1 or sampling.temperature < 0:
            raise EngineError(f"no answer can be sampled with {sampling}")
        reply = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(prompt=prompt, sampling=sampling, seed=seed, reply=reply))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return await reply

    async def update(self, version: PolicyVersion) -> None:
        """Copy the weights between two batches and serve them as `version` from the next batch on."""
        async with self._computing:
            if self._closed:
                raise EngineError("the engine is closed")
            async with boundary(EngineError, f"taking over the weights of version {version}"):
                await asyncio.get_running_loop().run_in_executor(self._worker, self._copy_weights, version)

    async def close(self) -> None:
        """Fail whatever waits or is under way, at once; idempotent."""
        self._closed = True
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        _fail(self._waiting, EngineError("the engine was closed before it answered"))
        self._waiting.clear()
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        """Consumes `_waiting`; produces replies; ends when nothing waits; unblocked by `generate`."""
        while self._waiting:
            await self._gather()
            async with self._computing:
                batch = self._take()
                try:
                    await self._answer(batch)
                except asyncio.CancelledError:
                    _fail(batch, EngineError("the engine was closed while it answered"))
                    raise

    async def _gather(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._gathering.limit
        seen = 0
        while len(self._waiting) > seen and len(self._waiting) < self._gathering.max_rows and loop.time() < deadline:
            seen = len(self._waiting)
            await asyncio.sleep(min(self._gathering.quiet, self._gathering.limit))

    def _take(self) -> list[_Request]:
        """The next batch, in order of arrival; callers that have gone away are forgotten."""
        self._waiting = [r for r in self._waiting if not r.reply.done()]
        different: set[tuple[bytes, tuple[str, ...]]] = set()
        tokens = 0
        taken = 0
        for request in self._waiting[: self._gathering.max_rows]:
            key = (request.prompt.token_ids.tobytes(), request.prompt.images)
            tokens += 0 if key in different else request.prompt.token_ids.shape[0]
            if taken and tokens > self._gathering.max_prompt_tokens:
                break
            different.add(key)
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _answer(self, batch: Sequence[_Request]) -> None:
        if not batch:
            return
        try:
            async with boundary(EngineError, f"sampling {len(batch)} answers"):
                completions = await asyncio.get_running_loop().run_in_executor(self._worker, self._sample, batch)
        except CairnError as error:
            _fail(batch, error)
            return
        for request, completion in zip(batch, completions, strict=True):
            if not request.reply.done():
                request.reply.set_result(completion)

    @torch.inference_mode()
    def _sample(self, batch: Sequence[_Request]) -> list[Completion]:
        """Answers to `batch`, in order. Runs in the worker thread."""
        version = self._version  # stable here: `update` waits for the batch
        rows = [_Row(request=r, noise=np.random.Generator(np.random.Philox(r.seed))) for r in batch]
        prefix = self._prefixes.prefill([r.prompt for r in batch])
        active = rows
        while True:
            chosen = self._choose(active, prefix)
            if self._closed or all(row.finished for row in active):
                break
            prefix, active, chosen = _without_finished(prefix, active, chosen)
            ids = torch.tensor(chosen, device=self._policy.device)[:, None]
            _, prefix = self._policy.extend(prefix, ids)
        return [_completion(row, version) for row in rows]

    def _choose(self, rows: Sequence[_Row], prefix: Prefix) -> list[int]:
        """Sample one token for every row; finished rows keep their answer and get a filler."""
        temperatures = [row.request.sampling.temperature for row in rows]
        uniforms = [row.noise.random() for row in rows]
        ids, logprobs = sample(prefix.logits, temperatures, uniforms)
        for row, token, logprob in zip(rows, ids, logprobs, strict=True):
            if not row.finished:
                row.token_ids.append(token)
                row.logprobs.append(logprob)
                row.stopped = token in self._stop_ids
        return ids

    @torch.no_grad()
    def _copy_weights(self, version: PolicyVersion) -> None:
        """Runs in the worker thread, weights and version together, so that a cancelled caller cannot part them."""
        if self._weights is not None:
            source = self._weights()
            target = self._policy.model.state_dict()
            new, old = ({(name, weight.shape) for name, weight in d.items()} for d in (source, target))
            if new != old:  # checked before the first copy: a refused update leaves the old version whole
                raise EngineError(f"the learner's weights do not fit the engine's: {sorted(map(str, new ^ old))[:4]}")
            for name, weight in target.items():  # a tied head has two names and one storage: written twice, alike
                weight.copy_(source[name])
        self._prefixes.clear()
        self._version = version


def sample(logits: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """One token for every row of `logits` [B, V], with its log-probability under the distribution sampled from.

    Row i takes the first token at which the cumulative distribution passes uniforms[i] in [0, 1): one number a token,
    and a token of probability 0 is never taken. Temperature 0 takes the most likely token, and its log-probability at
    1.
    """
    heat = torch.tensor([t if t > 0 else 1.0 for t in temperatures], device=logits.device)
    log_probs = torch.log_softmax(logits / heat[:, None], -1)
    chosen = _inverse_cdf(log_probs, torch.tensor(uniforms, dtype=torch.float64, device=logits.device))
    greedy = torch.tensor([t == 0 for t in temperatures], device=logits.device)
    chosen = torch.where(greedy, log_probs.argmax(-1), chosen)
    return chosen.tolist(), log_probs.gather(-1, chosen[:, None]).squeeze(-1).tolist()


def _inverse_cdf(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    cumulative = log_probs.exp().cumsum(-1, dtype=torch.float64)
    targets = uniforms * cumulative[:, -1]
    chosen = torch.searchsorted(cumulative, targets[:, None], right=True).squeeze(-1)
    last = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous()).squeeze(-1)
    return torch.minimum(chosen, last)  # rounding may lift a target to the total


def _without_finished(prefix: Prefix, rows: list[_Row], chosen: list[int]) -> tuple[Prefix, list[_Row], list[int]]:
    """Let finished rows leave, once they are a quarter: leaving copies the cache of those that stay."""
    stay = [i for i, row in enumerate(rows) if not row.finished]
    if 4 * len(stay) > 3 * len(rows):
        return prefix, rows, chosen
    return prefix.select(stay), [rows[i] for i in stay], [chosen[i] for i in stay]


def _completion(row: _Row, version: PolicyVersion) -> Completion:
    return Completion(
        token_ids=np.array(row.token_ids, np.int32),
        logprobs=np.array(row.logprobs, np.float32),
        versions=np.full(len(row.token_ids), version, np.int32),
        truncated=not row.stopped,
    )


def _fail(requests: Sequence[_Request], error: CairnError) -> None:
    """Every caller gets an exception object of its own, because each raises it into a traceback of its own."""
    for request in requests:
        if not request.reply.done():
            own = type(error)(*error.args)
            own.__cause__ = error.__cause__
            request.reply.set_exception(own)
