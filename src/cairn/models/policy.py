"""One torch-side view of a causal language model, used by the engine (without gradient) and the learner (with it).

Both go through the same two calls, so that what is trained is what was sampled from:

    prefix = policy.prefill(prompts)             each different prompt once, however many rows ask for it
    logits, prefix = policy.extend(prefix, ids)  a few tokens more for every row

`model` is any `PreTrainedModel` with the causal forward
`model(input_ids, attention_mask, position_ids, past_key_values, use_cache, logits_to_keep, **images)` and a `RowCache`.
Forbidden ids have logit -inf here, and so in the engine and in the learner alike.

Models of other people's see through `Eyes`: features of each different image once, wherever it is shown, and positions
as the model wants them. Between an answer's tokens there may be images too, of turns that share a sample.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32, Int64
from torch import Tensor, nn
from transformers import PreTrainedModel

from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.errors import InvariantError
from cairn.models.adapters import plain_copy
from cairn.models.batching import buckets, distinct, micro_batches, padded_left, padded_right
from cairn.models.looking import Eyes, Features, Looking, check_placeholders
from cairn.models.prefix import Prefix, RowCache, join, joinable
from cairn.models.recomputing import recomputed_layers, recomputing
from cairn.models.scoring import Scores, of_hidden, of_logits
from cairn.models.tree import Rows, tree_batches
from cairn.models.trees import Show, TreeReader, tree_reader
from cairn.models.valuing import Valuing
from cairn.models.vision.shown import Shown

_PASS_COST = 512
"""What one more pass costs in training, in tokens: gradients of all weights are added up after each."""

P = TypeVar("P", bound="Policy")

ImageFeatures = Callable[[Sequence[ImageId]], Mapping[str, Tensor]]
"""From image ids, in the order of their placeholders, to the model's image arguments (`pixel_values`, …)."""


class Policy:
    """A model with its forbidden ids, its way to see images and the precision that it computes in."""

    def __init__(
        self,
        *,
        model: PreTrainedModel,
        forbidden_ids: frozenset[int] = frozenset(),
        image_features: ImageFeatures | None = None,
        eyes: Eyes | None = None,
        autocast: torch.dtype | None = None,
        sharing: bool = True,
    ) -> None:
        """Wrap `model` as it is; with `autocast`, matrix products are computed in that type.

        Images are seen by `eyes`, or by a model of its own kind through `image_features`. Without `sharing` the learner
        computes every sequence by itself: to compare with.
        """
        self.model = model.eval()  # dropout would make the sampled and the trained distribution differ
        self._image_features = image_features
        self._eyes = eyes
        self._looking: Looking | None = None  # while several passes share what was seen
        self.autocast = autocast
        self._sharing = sharing
        self._forbidden = torch.tensor(sorted(forbidden_ids), dtype=torch.long, device=model.device)
        self._recomputed = recomputed_layers(model)
        self._several_passes = image_features is None and self._cache_is_joinable()
        self._trees = tree_reader(model, sharing=sharing) if image_features is None else None

    @property
    def packs(self) -> bool:
        """Whether what sequences begin with in common is computed once wherever it ends; else prompts alone are."""
        return self._trees is not None

    @property
    def mask(self) -> str | None:
        """How attention is told of a tree: in "blocks" it is FlexAttention that is; None where there are no trees."""
        return None if self._trees is None else self._trees.mask

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.model.device

    def copy(self, *, dtype: torch.dtype | None = None) -> "Policy":
        """A policy with weights of its own, without gradient: for an engine, or as a reference to stay close to.

        With `dtype` all its weights are of that type and it computes in it. Adapters become part of its weights.
        """
        autocast = self.autocast if dtype is None else None
        return self.like(Policy, plain_copy(self.model, dtype=dtype), autocast=autocast)

    def like(self, kind: type[P], model: PreTrainedModel, *, autocast: torch.dtype | None) -> P:
        """A policy of another `kind` around another model of the same class, in all else like this one."""
        return kind(
            model=model,
            forbidden_ids=frozenset(self._forbidden.tolist()),
            image_features=self._image_features,
            eyes=self._eyes,
            autocast=autocast,
            sharing=self._sharing,
        )

    def become_critic(self) -> "Policy":
        """Itself, whose model from now on says one value after each token, 0 at first, and is trained.

        `values` reads them. The body stays as it is.
        """
        model = self.model.requires_grad_(requires_grad=True)
        if isinstance(model, Valuing):
            model.become_critic()
        else:
            last = cast("nn.Linear", model.get_output_embeddings())
            head = nn.Linear(last.in_features, 1).to(model.device)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            model.set_output_embeddings(head)
            if self._trees is not None:
                self._trees.head = head
        self._forbidden = self._forbidden[:0]
        return self

    @contextmanager
    def looking(self, images: Sequence[ImageId]) -> Generator[None]:
        """Look at each of these images once for all passes within, forward and backward.

        Gradients of what was seen are added up, and go back through the eyes when the block is left. The weights must
        not change within. Without eyes, nothing is done.
        """
        if self._eyes is None or self._looking is not None:
            yield
            return
        different = list(dict.fromkeys(images))
        with self._precision():
            seen = self._eyes.encode(self.model, different) if different else ()
        self._looking = Looking(seen, different)
        try:
            yield
            self._looking.backward()
        finally:
            self._looking = None

    def prefill(self, prompts: Sequence[Prompt], *, known: dict[ImageId, Features] | None = None) -> Prefix:
        """Read the prompts: one row each, in order, equal prompts computed once, and equal images too.

        Prompts of very different lengths are read in several passes where that computes fewer tokens. `known` are
        images seen before with these weights; what is seen now is added.
        """
        unique, rows = distinct(prompts)
        parts = buckets([p.token_ids.shape[0] for p in unique]) if self._several_passes else [list(range(len(unique)))]
        seen = self._seen([image for p in unique for image in p.images], known)
        prefixes = [self._read([unique[i] for i in part], seen) for part in parts]
        place = {i: at for at, i in enumerate(i for part in parts for i in part)}
        wanted = [place[row] for row in rows]
        joined = join(prefixes)
        return joined if wanted == list(range(len(unique))) else joined.select(wanted)

    def extend(self, prefix: Prefix, ids: Int64[Tensor, "B A"]) -> tuple[Float32[Tensor, "B A V"], Prefix]:
        """Read `ids` after the prefix; the logits after each of them, and the longer prefix."""
        mask = torch.cat([prefix.mask, torch.ones_like(ids)], 1)
        positions = prefix.length[:, None] + torch.arange(ids.shape[1], device=ids.device)
        if self._eyes is not None and self._eyes.axes > 1:
            positions = positions.expand(self._eyes.axes, *positions.shape)
        logits, cache = self._forward(ids, mask, positions, cache=prefix.cache, keep=0, images={})
        length = prefix.length + ids.shape[1]
        return logits, Prefix(cache=cache, mask=mask, length=length, logits=logits[:, -1])

    def answer_logits(
        self, prompts: Sequence[Prompt], answers: Sequence[Int32[np.ndarray, " A"]]
    ) -> Float32[Tensor, "B A V"]:
        """The logits that each answer token was chosen by; rows of shorter answers end in padding.

        Siblings' shared prompts are computed once, forward and backward. Answers are not empty.
        """
        ids = torch.from_numpy(padded_right(answers)).to(self.device)
        with self._precision():  # around both passes, so that weights are rounded once for the two
            if self._eyes is not None and any((answer == self._eyes.placeholder_id).any() for answer in answers):
                return self._read_whole(prompts, ids)
            whole = self._keeps_no_cache or (self._several_passes and len(distinct(prompts)[0]) == len(prompts))
            if whole:
                return self._read_whole(prompts, ids)
            prefix = self.prefill(prompts)
            first = prefix.logits[:, None]
            if ids.shape[1] == 1:
                return first
            rest, _ = self.extend(prefix, ids[:, :-1])
        return torch.cat([first, rest], 1)

    def scores(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Int32[np.ndarray, " A"]],
        sampled: Sequence[Int64[np.ndarray, " T"]],
        *,
        temperature: float,
    ) -> Scores:
        """How likely the answers' tokens at the places `sampled` were, one answer after another."""
        wanted = np.concatenate([answer[at] for answer, at in zip(answers, sampled, strict=True)]).astype(np.int64)
        ids = torch.from_numpy(wanted).to(self.device)
        if self._trees is None:
            flat = self._flat_logits(prompts, answers, sampled)
            chosen, entropy = of_logits(flat, ids, temperature=temperature)
            unique, _ = distinct(prompts)
            computed = sum(p.token_ids.shape[0] for p in unique) + sum(a.shape[0] for a in answers)
            return Scores(chosen=chosen, entropy=entropy, computed=computed)
        with self._precision():
            hidden, computed = self._states(self._trees, prompts, answers, sampled)
            head, vocabulary = self._trees.head, self._trees.vocabulary
            chosen, entropy = of_hidden(
                hidden, ids, head=lambda h: self._allowed(head(h)), vocabulary=vocabulary, temperature=temperature
            )
        return Scores(chosen=chosen, entropy=entropy, computed=computed)

    def values(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Int32[np.ndarray, " A"]],
        sampled: Sequence[Int64[np.ndarray, " T"]],
    ) -> Float32[Tensor, " T"]:
        """What a critic says before each of the answers' tokens at the places `sampled`, one answer after another."""
        if self._trees is None:
            return self._flat_logits(prompts, answers, sampled).squeeze(-1)
        with self._precision():
            hidden, _ = self._states(self._trees, prompts, answers, sampled)
            return self._trees.head(hidden).float().squeeze(-1)

    def _flat_logits(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Int32[np.ndarray, " A"]],
        sampled: Sequence[Int64[np.ndarray, " T"]],
    ) -> Float32[Tensor, "T V"]:
        logits = self.answer_logits(prompts, answers)
        at = np.concatenate([row * logits.shape[1] + own for row, own in enumerate(sampled)])
        return logits.flatten(0, 1).index_select(0, torch.from_numpy(at).to(self.device))

    def _states(
        self,
        trees: TreeReader,
        prompts: Sequence[Prompt],
        answers: Sequence[Int32[np.ndarray, " A"]],
        sampled: Sequence[Int64[np.ndarray, " T"]],
    ) -> tuple[Float[Tensor, "T H"], int]:
        """Hidden states before the tokens at the places `sampled`, and how many tokens were computed."""
        before = [p.token_ids.shape[0] - 1 + at for p, at in zip(prompts, sampled, strict=True)]
        shown = self._shown(prompts, answers)
        if shown is None:
            return trees.read(_whole(prompts, answers), before)
        return trees.read(shown.keys, before, show=self._show(shown))

    def parts(
        self, prompts: Sequence[Prompt], answers: Sequence[Int32[np.ndarray, " A"]], *, max_tokens: int
    ) -> list[list[int]]:
        """Numbers of the answers that `scores` takes at once to compute `max_tokens` at most; at least one of them."""
        if self._trees is None:
            return micro_batches(prompts, [answer.shape[0] for answer in answers], max_tokens=max_tokens)
        shown = self._shown(prompts, answers)
        sequences = _whole(prompts, answers) if shown is None else shown.keys
        return tree_batches(sequences, max_tokens=max_tokens)

    def _shown(self, prompts: Sequence[Prompt], answers: Sequence[Int32[np.ndarray, " A"]]) -> Shown | None:
        if self._eyes is None:
            return None
        sequences, images = _whole(prompts, answers), [prompt.images for prompt in prompts]
        for ids, own in zip(sequences, images, strict=True):
            check_placeholders(self._eyes, torch.from_numpy(ids)[None], [own])
        return Shown(eyes=self._eyes, sequences=sequences, images=images)

    def _show(self, shown: Shown) -> Show:
        seen = self._seen([image for own in shown.images for image in own], None)

        def show(rows: Rows) -> tuple[Tensor, Tensor, Mapping[str, object]]:
            ids = torch.from_numpy(shown.ids(rows)).to(self.device)
            positions = shown.positions(self.model, rows).to(self.device)
            return ids, positions, shown.eyes.arguments(shown.features(rows, seen))

        return show

    def _allowed(self, logits: Tensor) -> Tensor:
        return logits.float().index_fill(-1, self._forbidden, -torch.inf)

    def _read(self, prompts: Sequence[Prompt], seen: Mapping[ImageId, Features]) -> Prefix:
        ids, mask = (torch.from_numpy(a).to(self.device) for a in padded_left([p.token_ids for p in prompts]))
        images = self._images(prompts, ids, seen)
        positions = self._positions(ids, mask, [image for p in prompts for image in p.images])
        logits, cache = self._forward(ids, mask, positions, cache=None, keep=1, images=images)
        length = positions[..., -1].amax(0) + 1 if positions.dim() > 2 else positions[:, -1] + 1
        return Prefix(cache=cache, mask=mask, length=length, logits=logits[:, -1])

    def _read_whole(self, prompts: Sequence[Prompt], answers: Int64[Tensor, "B A"]) -> Float32[Tensor, "B A V"]:
        """Prompts that nobody shares, each with its answer in one pass: the same as to read one after the other."""
        parts = buckets([p.token_ids.shape[0] for p in prompts], call_cost=_PASS_COST)
        looked = self._seen([image for p in prompts for image in p.images], None)
        read: list[Tensor] = []
        for part in parts:
            left, mask = (
                torch.from_numpy(a).to(self.device) for a in padded_left([prompts[i].token_ids for i in part])
            )
            said = answers[part, :-1]
            ids, seen = torch.cat([left, said], 1), torch.cat([mask, torch.ones_like(said)], 1)
            shown = [prompts[i] for i in part]
            images = self._images(shown, ids, looked)
            positions = self._positions(ids, seen, [image for p in shown for image in p.images])
            logits, _ = self._forward(ids, seen, positions, cache=None, keep=answers.shape[1], images=images)
            read.append(logits)
        order = [i for part in parts for i in part]
        back = torch.tensor(sorted(range(len(order)), key=order.__getitem__), device=self.device)
        return torch.cat(read).index_select(0, back)

    def _seen(self, images: Sequence[ImageId], known: dict[ImageId, Features] | None) -> Mapping[ImageId, Features]:
        """What each of these images is to the model, looked at once; empty without eyes."""
        if self._eyes is None:
            return {}
        found = dict(self._looking.features) if self._looking is not None else {}
        found |= known or {}
        new = [image for image in dict.fromkeys(images) if image not in found]
        with self._precision():
            fresh = dict(zip(new, self._eyes.encode(self.model, new), strict=True)) if new else {}
        if known is not None:
            known |= fresh
        return found | fresh

    def _positions(self, ids: Tensor, mask: Tensor, images: Sequence[ImageId]) -> Tensor:
        if self._eyes is None:
            return (mask.cumsum(1) - 1).clamp(min=0)
        return self._eyes.positions(self.model, ids, mask, images)

    def _images(self, prompts: Sequence[Prompt], ids: Tensor, seen: Mapping[ImageId, Features]) -> Mapping[str, object]:
        """The model's arguments for the images of a pass; one row of `ids` for each prompt."""
        shown = [image for prompt in prompts for image in prompt.images]
        if self._eyes is not None:
            check_placeholders(self._eyes, ids, [prompt.images for prompt in prompts])
            return self._eyes.arguments([seen[image] for image in shown])
        if self._image_features is None:
            if shown:
                raise InvariantError(f"the prompt holds {len(shown)} images and the policy was given no way to see")
            return {}
        return {k: v.to(self.device) for k, v in self._image_features(shown).items()} if shown else {}

    def _forward(
        self,
        ids: Tensor,
        mask: Tensor,
        positions: Tensor,
        *,
        cache: RowCache | None,
        keep: int,
        images: Mapping[str, object],
    ) -> tuple[Float[Tensor, "B K V"], RowCache]:
        with self._precision():
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=not self._keeps_no_cache,
                logits_to_keep=keep,
                **images,
            )
        return self._allowed(out.logits), out.past_key_values

    @property
    def _keeps_no_cache(self) -> bool:
        """Layers that are computed again would fill a cache twice."""
        return bool(self._recomputed) and torch.is_grad_enabled()

    @contextmanager
    def _precision(self) -> Generator[None]:
        """In which type passes are computed, and what they keep for their gradients."""
        enabled = self.autocast is not None
        autocast = torch.autocast(self.device.type, self.autocast or torch.bfloat16, enabled=enabled)
        with autocast, recomputing(self._recomputed):
            yield

    @torch.no_grad()
    def _cache_is_joinable(self) -> bool:
        one = torch.ones((1, 1), dtype=torch.long, device=self.device)
        return joinable(self.model(input_ids=one, attention_mask=one, use_cache=True, logits_to_keep=1).past_key_values)


def _whole(prompts: Sequence[Prompt], answers: Sequence[Int32[np.ndarray, " A"]]) -> list[Int64[np.ndarray, " L"]]:
    """All that must be read: nothing is chosen after an answer's last token."""
    return [
        np.concatenate([p.token_ids, answer[:-1]]).astype(np.int64) for p, answer in zip(prompts, answers, strict=True)
    ]
