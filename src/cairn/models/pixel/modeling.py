"""The pixel policy: a goal-conditioned convolutional encoder with a small autoregressive head, as a causal LM.

The encoder (screenshot, goal, past actions) runs once for each prompt; its result is the cache. An answer token costs
only the head, because what may follow depends on the last token and the encoded prompt alone. Continuations that the
grammar does not allow have a logit of -1e4: their probability is exactly 0 in float32, and entropies stay finite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils.generic import ModelOutput

from cairn.data.pixel_vocabulary import POINTED, PixelVocabulary, Verb
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.layers import Block, GoalEncoder

_ILLEGAL = -1e4
_READS_EVERY = 2  # every second block reads the words
# kinds of token: 0 is anything else, then the verbs in order, then these
_CLICK, _START, _END, _SOURCE, _ACT, _FAILED, _UNSAID, _KINDS = (len(Verb) + i for i in range(1, 9))


@dataclass(slots=True)
class PixelCache:
    """Encoded prompts. Rows can be selected and repeated as in any `transformers` cache; works under autograd."""

    places: Float[Tensor, "B C F"]  # features of the locations
    words: Float[Tensor, "B W T"]  # states of the goal's words
    count: Int[Tensor, " B"]  # goal words that can be pointed at
    context: Float[Tensor, "B T"]
    length: int  # tokens seen, as other caches report it

    def batch_select_indices(self, indices: Tensor) -> None:
        """Make row i what row indices[i] was; rows may repeat."""
        self._change(lambda t: t.index_select(0, indices))

    def shared(self) -> "PixelCache":
        """The same rows, to be changed apart."""
        return replace(self)

    def append(self, others: Sequence["PixelCache"]) -> None:
        """Take in the rows of `others` after its own."""
        caches = [self, *others]
        width = max(cache.words.shape[1] for cache in caches)
        self.words = torch.cat([functional.pad(c.words, (0, 0, 0, width - c.words.shape[1])) for c in caches])
        self.places = torch.cat([cache.places for cache in caches])
        self.count = torch.cat([cache.count for cache in caches])
        self.context = torch.cat([cache.context for cache in caches])
        self.length = max(cache.length for cache in caches)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row `repeats` times."""
        self._change(lambda t: t.repeat_interleave(repeats, 0))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens seen so far, padding included."""
        del layer_idx
        return self.length

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        self.places, self.words = change(self.places), change(self.words)
        self.count, self.context = change(self.count), change(self.context)


@dataclass
class PixelOutput(ModelOutput):
    """As every causal LM answers."""

    logits: Float[Tensor, "B K V"] | None = None
    past_key_values: PixelCache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What the prompt says of past actions."""

    kinds: Int[Tensor, "B L"]  # index into a table of kind x recency; 0 where there is nothing
    marks: Int[Tensor, "B L"]  # likewise for places, 0 where there is none
    cells: Int[Tensor, "B L"]  # coarse cell of each place
    last_cell: Int[Tensor, " B"]
    has_cell: Int[Tensor, " B"]
    typed: Float[Tensor, "B W"]  # 1 where a past action typed the word


class PixelForCausalLM(PreTrainedModel):
    """From a prompt with one screenshot to logits over the next answer token, in the language of `PixelVocabulary`."""

    config_class = PixelConfig
    base_model_prefix = "pixel"
    main_input_name = "input_ids"

    def __init__(self, config: PixelConfig) -> None:
        super().__init__(config)
        width, text, fine = config.width, config.text_width, config.fine
        self.layout = config.vocabulary
        self.goal = GoalEncoder(config)
        self.past_kind = nn.Embedding(_KINDS * config.history + 1, text)
        self.past_mark = nn.Embedding(2 * config.history + 1, width)
        self.film = nn.Sequential(
            nn.LayerNorm(text), nn.Linear(text, 2 * text), nn.GELU(), nn.Linear(2 * text, 2 * width * config.blocks)
        )
        self.stem = nn.Conv2d(3, fine // 2, 4, stride=2, padding=1)
        self.shrink = nn.Conv2d(fine // 2, fine, config.patch, stride=config.patch // 2, padding=config.patch // 4)
        self.stem_mix = nn.Conv2d(fine, fine, 3, padding=1)
        self.down = nn.Conv2d(fine, width, 2, stride=2)
        self.where = nn.Parameter(torch.empty((config.grid // 2) ** 2, width))
        self.blocks = nn.ModuleList(
            Block(width=width, text_width=text, reads=i % _READS_EVERY == 0) for i in range(config.blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * fine)
        self.skip = nn.Linear(fine, fine)
        self.pooled = nn.Sequential(nn.Linear(2 * text + 3 * width, text), nn.GELU(), nn.Linear(text, text))
        self.head: PixelHead | PixelValues = PixelHead(config)
        self.post_init()

    def become_critic(self) -> None:
        """From now on there is one logit after each token: a value. It starts at 0 everywhere."""
        if isinstance(self.head, PixelHead):
            self.head = PixelValues(self.head)

    def _init_weights(self, module: nn.Module) -> None:
        match module:
            case nn.Conv2d():
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                _clear(module.bias)
            case nn.Linear():
                nn.init.xavier_uniform_(module.weight)
                _clear(module.bias)
            case nn.LayerNorm():
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            case nn.Embedding():
                nn.init.normal_(module.weight, std=0.5)
            case GoalEncoder():
                nn.init.normal_(module.place_in_word, mean=1.0, std=0.5)
                nn.init.normal_(module.position, std=0.3)
                nn.init.normal_(module.typed, std=0.5)
            case Block():  # starts as the identity, so that depth does not slow the first steps
                nn.init.zeros_(module.second.weight)
            case PixelForCausalLM():
                nn.init.normal_(module.where, std=0.1)
            case _:
                pass

    def forward(  # noqa: PLR0913 - the signature of every causal LM
        self,
        input_ids: Int[Tensor, "B L"],
        attention_mask: Int[Tensor, "B M"] | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        past_key_values: PixelCache | None = None,
        use_cache: bool = True,  # noqa: FBT001, FBT002 - the signature of every causal LM
        logits_to_keep: int = 0,
        pixel_values: UInt8[Tensor, "B 3 H W"] | Float[Tensor, "B 3 H W"] | None = None,
        **unused: object,
    ) -> PixelOutput:
        """Logits after each of the last `logits_to_keep` tokens (0: all), and the encoded prompt.

        Without a cache, `input_ids` are left-padded prompts that end in `<act>`, or prompt + answer; with one, answer
        tokens. `pixel_values` are in [0, 255].
        """
        del position_ids, unused
        cache = past_key_values
        if cache is None:
            if pixel_values is None:
                raise ValueError("a prompt holds a screenshot: pass pixel_values")
            ids = input_ids if attention_mask is None else input_ids * attention_mask.to(input_ids.dtype)
            cache = self._encode(ids, pixel_values)
        else:
            cache.length += input_ids.shape[1]
        logits = self.head(cache, input_ids[:, -logits_to_keep:])
        return PixelOutput(logits=logits, past_key_values=cache if use_cache else None)

    def _encode(self, ids: Tensor, pixels: Tensor) -> PixelCache:
        config, layout = self.config, self.layout
        length = ids.shape[1]
        answered = (ids == layout.ACT).long().cumsum(1) > 0  # an answer that follows the prompt is not part of it
        ids = torch.where(answered, layout.PAD, ids)
        past = self._past(ids)
        words, mask = self.goal(ids, past.typed)
        before = (self.past_kind(past.kinds) * (past.kinds > 0)[..., None]).sum(1)
        goal = words[:, 0] + before
        film = self.film(goal).view(-1, config.blocks, 2, config.width)
        fine = self._fine(pixels)
        x = self.down(fine).permute(0, 2, 3, 1)
        side = config.grid // 2
        marks = self.past_mark(past.marks) * (past.marks > 0)[..., None]
        spots = marks.new_zeros(ids.shape[0], side * side, config.width)
        spots = spots.scatter_add(1, past.cells[..., None].expand_as(marks), marks)
        x = x + (self.where + spots).view(-1, side, side, config.width)
        for i, block in enumerate(self.blocks):
            x = block(x, film[:, i], words, mask)
        x = self.norm(x)
        flat = x.flatten(1, 2)
        here = flat.gather(1, past.last_cell[:, None, None].expand(-1, 1, config.width))[:, 0] * past.has_cell[:, None]
        pooled = torch.cat([flat.amax(1), flat.mean(1), here, goal.to(x.dtype), words[:, 0].to(x.dtype)], -1)
        raised = functional.pixel_shuffle(self.up(x).permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
        places = functional.relu(raised + self.skip(fine.permute(0, 2, 3, 1))).flatten(1, 2)
        count = mask.sum(1) - 1
        return PixelCache(places, words[:, 1:], count, self.pooled(pooled), length)

    def _fine(self, pixels: Tensor) -> Tensor:
        scaled = pixels.to(self.stem.weight.dtype).contiguous(memory_format=torch.channels_last) / 255 - 0.5
        x = functional.relu(self.shrink(functional.relu(self.stem(scaled))))
        return x + functional.relu(self.stem_mix(x))

    def _past(self, ids: Tensor) -> _Past:
        layout, history = self.layout, self.config.history
        turn = (ids == layout.TURN).long().cumsum(1)
        recency = turn[:, -1:] - turn
        shown = (turn > 0) & (recency < history)
        kinds = torch.where(shown, kinds_of(ids, layout), 0)
        is_source = kinds == _SOURCE
        is_place = is_source | (kinds == _CLICK)
        cell = torch.where(is_place, (ids - layout.source) % layout.cells, 0)
        row, column = cell // layout.grid, cell % layout.grid
        coarse = row // 2 * (layout.grid // 2) + column // 2
        at = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        last = torch.where(is_place, at, -1).amax(1)
        word = torch.arange(layout.span, device=ids.device)
        starts = torch.where(kinds == _START, ids - layout.start, layout.span)[..., None]
        ends = functional.pad(torch.where(kinds == _END, ids - layout.end, -1)[:, 1:], (0, 1), value=-1)[..., None]
        return _Past(
            kinds=torch.where(kinds > 0, (kinds - 1) * history + recency + 1, 0),
            marks=torch.where(is_place, 2 * recency + is_source.long() + 1, 0),
            cells=coarse,
            last_cell=coarse.gather(1, last.clamp(min=0)[:, None])[:, 0],
            has_cell=(last >= 0).long(),
            typed=((starts <= word) & (word <= ends)).any(1).float(),
        )


class PixelHead(nn.Module):
    """From an encoded prompt and the last token to the logits of the next."""

    def __init__(self, config: PixelConfig) -> None:
        super().__init__()
        self.layout = config.vocabulary
        text, fine = config.text_width, config.fine
        self.kind = nn.Embedding(_KINDS, text)
        self.from_word = nn.Linear(text, text)
        self.from_place = nn.Linear(fine, text)
        self.norm = nn.LayerNorm(text)
        self.mlp = nn.Sequential(nn.Linear(text, 2 * text), nn.GELU(), nn.Linear(2 * text, text))
        self.verbs = nn.Linear(text, len(Verb))
        self.place = nn.Linear(text, fine)
        self.place_bias = nn.Linear(text, 1)
        self.start_key, self.end_key = nn.Linear(text, text), nn.Linear(text, text)
        self.start_query, self.end_query = nn.Linear(text, text), nn.Linear(text, text)

    def forward(self, cache: PixelCache, last: Int[Tensor, "B A"]) -> Float[Tensor, "B A V"]:
        """Logits in float32; what the grammar does not allow after `last` has -1e4."""
        layout = self.layout
        kind = kinds_of(last, layout) - 1
        x = self.state(cache, last, kind.clamp(min=0))
        scale = x.shape[-1] ** -0.5
        places = self.place(x) @ cache.places.transpose(1, 2).to(x.dtype) * cache.places.shape[-1] ** -0.5
        places = (places + self.place_bias(x)).float()
        starts = (self.start_query(x) @ self.start_key(cache.words).transpose(1, 2) * scale).float()
        ends = (self.end_query(x) @ self.end_key(cache.words).transpose(1, 2) * scale).float()
        drags, points = kind == _DRAG, ((kind >= 0) & (kind < len(POINTED))) | (kind + 1 == _SOURCE)
        spans = kind + 1 == _START
        first = ~(drags | points | spans)  # after an answer's last token nothing is asked, but something must be legal
        word = torch.arange(layout.span, device=last.device)
        known = word < cache.count[:, None, None]
        after = known & (word >= (last - layout.start)[..., None])
        blank = places.new_full((*last.shape, 1), _ILLEGAL)
        parts = [
            blank.expand(-1, -1, layout.verb),
            torch.where(first[..., None], self.verbs(x).float(), blank),
            torch.where(first[..., None] & known, starts, blank),
            torch.where(spans[..., None] & after, ends, blank),
            torch.where(drags[..., None], places, blank),
            torch.where((first | points)[..., None], places, blank),
        ]
        return torch.cat(parts, -1)

    def state(self, cache: PixelCache, last: Tensor, kind: Tensor) -> Tensor:
        """What the last token adds to the encoded prompt."""
        layout = self.layout
        x = cache.context[:, None] + self.kind(kind)
        if last.shape[1] > 1 or bool((kind + 1 != _ACT).any()):  # the first token of an answer needs neither
            word = (last - layout.start).clamp(0, layout.span - 1)
            place = (last - layout.source).clamp(0, layout.cells - 1)
            x = x + self.from_word(_pick(cache.words, word)) * (kind + 1 == _START)[..., None]
            x = x + self.from_place(_pick(cache.places, place)) * (kind + 1 == _SOURCE)[..., None]
        return x + self.mlp(self.norm(x))


class PixelValues(nn.Module):
    """From an encoded prompt and the last token to what is still to come, in the place of logits."""

    def __init__(self, head: PixelHead) -> None:
        super().__init__()
        self.states = head
        self.value = nn.Linear(head.verbs.in_features, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def forward(self, cache: PixelCache, last: Int[Tensor, "B A"]) -> Float[Tensor, "B A 1"]:
        """One number for each of `last`."""
        kind = kinds_of(last, self.states.layout) - 1
        return self.value(self.states.state(cache, last, kind.clamp(min=0)).float())


_DRAG = PixelVocabulary.VERBS.index(Verb.DRAG)


def kinds_of(ids: Int[Tensor, "B L"], layout: PixelVocabulary) -> Int[Tensor, "B L"]:
    """What sort of token each id is, as far as actions go; 0 where it is none."""
    bounds = torch.tensor([layout.start, layout.end, layout.source, layout.place], device=ids.device)
    group = torch.tensor([0, _START, _END, _SOURCE, _CLICK], device=ids.device)[
        torch.bucketize(ids.contiguous(), bounds, right=True)
    ]
    kind = torch.where((ids >= layout.verb) & (ids < layout.start), ids - layout.verb + 1, group)
    for special, value in ((layout.ACT, _ACT), (layout.FAILED, _FAILED), (layout.UNSAID, _UNSAID)):
        kind = torch.where(ids == special, value, kind)
    return kind


def _clear(bias: Tensor | None) -> None:
    if bias is not None:
        nn.init.zeros_(bias)


def _pick(states: Float[Tensor, "B N D"], index: Int[Tensor, "B A"]) -> Float[Tensor, "B A D"]:
    return states.gather(1, index[..., None].expand(-1, -1, states.shape[-1]))


def register() -> None:
    """Let `AutoConfig` and `AutoModelForCausalLM` know the pixel policy. Idempotent."""
    AutoConfig.register(PixelConfig.model_type, PixelConfig, exist_ok=True)
    AutoModelForCausalLM.register(PixelConfig, PixelForCausalLM, exist_ok=True)
