"""Prompts that were read lately, so that a sibling who asks a moment later does not have them read again."""

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.models.batching import distinct
from cairn.models.looking import Features
from cairn.models.policy import Policy
from cairn.models.prefix import Prefix, join, joinable

_MOST_IMAGES = 256
"""Screenshots whose features stay in memory: the next turn's prompt shows the last one's again."""

_Key = tuple[bytes, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """Prompts that were read together."""

    prefix: Prefix
    keys: tuple[_Key, ...]  # of its rows

    @property
    def tokens(self) -> int:
        return self.prefix.mask.numel()


class PrefixCache:
    """Reads prompts through `policy`, each once while it is among the latest `max_tokens` (padded) tokens.

    Whoever changes the weights calls `clear`. A policy whose caches cannot be joined is passed through.
    """

    def __init__(self, policy: Policy, *, max_tokens: int) -> None:
        self._policy = policy
        self._max_tokens = max_tokens
        self._readings: list[_Reading] = []  # oldest first
        self._places: dict[_Key, tuple[_Reading, int]] = {}
        self._seen: dict[ImageId, Features] = {}
        self.hits = 0
        """Prompts, of those that differ within a call, that were not read again."""

    def clear(self) -> None:
        """Forget everything: it was read with other weights."""
        self._readings.clear()
        self._places.clear()
        self._seen.clear()

    def prefill(self, prompts: Sequence[Prompt]) -> Prefix:
        """As `Policy.prefill`: one row for each prompt, in order."""
        unique, wanted = distinct(prompts)
        keys = [_key(prompt) for prompt in unique]
        known = {key: self._places[key] for key in keys if key in self._places}
        self.hits += len(known)
        parts: list[Prefix] = []
        order: list[_Key] = []
        for reading in dict.fromkeys(reading for reading, _ in known.values()):
            rows = {key: row for key, (owner, row) in known.items() if owner is reading}
            parts.append(reading.prefix.shared().select(list(rows.values())))
            order.extend(rows)
        fresh = [(key, prompt) for key, prompt in zip(keys, unique, strict=True) if key not in known]
        if fresh:
            parts.append(self._read([prompt for _, prompt in fresh], keys=tuple(key for key, _ in fresh)))
            order.extend(key for key, _ in fresh)
        place = {key: row for row, key in enumerate(order)}
        rows = [place[keys[i]] for i in wanted]
        joined = join(parts)
        return joined if rows == list(range(len(order))) else joined.select(rows)

    def _read(self, prompts: Sequence[Prompt], *, keys: tuple[_Key, ...]) -> Prefix:
        prefix = self._policy.prefill(prompts, known=self._seen)
        while len(self._seen) > _MOST_IMAGES:
            del self._seen[next(iter(self._seen))]  # the first that was looked at
        if not joinable(prefix.cache):
            return prefix
        reading = _Reading(prefix, keys)
        self._readings.append(reading)
        self._places.update({key: (reading, row) for row, key in enumerate(keys)})
        while sum(each.tokens for each in self._readings) > self._max_tokens:
            self._forget(self._readings.pop(0))
        return prefix.shared()

    def _forget(self, reading: _Reading) -> None:
        for key in reading.keys:
            del self._places[key]


def _key(prompt: Prompt) -> _Key:
    return prompt.token_ids.tobytes(), prompt.images
