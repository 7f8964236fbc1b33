"""Prompts that were read lately are not read again, and it makes no difference to the answers."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from cairn.codecs.pixel import PixelCodec
from cairn.data.action import Click, Point, Type
from cairn.data.ids import ImageId
from cairn.data.trajectory import Prompt
from cairn.engines.prefixes import PrefixCache
from cairn.models.looking import Features
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.modeling import PixelForCausalLM
from cairn.models.policy import Policy
from shown_pages import page, turn
from tiny_policy import policy, prompt

IMAGES = [ImageId("a"), ImageId("b")]


def seen(images: Sequence[ImageId]) -> Mapping[str, Tensor]:
    pictures = [np.random.default_rng(ord(image)).integers(0, 256, (3, 160, 160), np.uint8) for image in images]
    return {"pixel_values": torch.from_numpy(np.stack(pictures))}


def pixel_policy() -> tuple[Policy, list[Prompt]]:
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        model = PixelForCausalLM(PixelConfig(width=16, fine=8, text_width=16, blocks=2, text_layers=1)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    codec = PixelCodec(vocabulary=model.config.vocabulary, crop=model.config.crop)
    shown = page()
    past = [turn(Click(Point(0.4, 0.6)), shown), turn(Type("ada"), shown)]
    asked = [codec.prompt("press ok", [], shown), codec.prompt('enter "ada lovelace"', past, shown)]
    prompts = [Prompt(token_ids=each.token_ids, images=(image,)) for each in asked for image in IMAGES]
    return Policy(model=model, image_features=seen), prompts


def text_policy() -> tuple[Policy, list[Prompt]]:
    return policy(), [prompt(4), prompt(90), prompt(9, seed=1), prompt(9)]


class Counting:
    """Notes how many prompts are read, and of what length."""

    def __init__(self, counted: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[int] = []
        really = counted.prefill

        def prefill(prompts: Sequence[Prompt], *, known: dict[ImageId, Features] | None = None):
            self.read.append(len(prompts))
            return really(prompts, known=known)

        monkeypatch.setattr(counted, "prefill", prefill)


def ids_for(rows: int, *, offset: int = 0) -> Tensor:
    return torch.arange(8 + offset, 8 + offset + rows)[:, None]


BOTH = pytest.mark.parametrize("make", [text_policy, pixel_policy])


@BOTH
@torch.inference_mode()
def test_known_and_new_prompts_side_by_side_are_as_if_all_were_read(make, monkeypatch: pytest.MonkeyPatch) -> None:
    tested, prompts = make()
    a, b, c, d = prompts
    counting = Counting(tested, monkeypatch)
    cache = PrefixCache(tested, max_tokens=10_000)
    cache.prefill([b, a, b])
    cache.prefill([c, a])
    mixed = [d, b, a, c, b, d]
    prefix = cache.prefill(mixed)
    assert counting.read == [2, 1, 1]
    assert cache.hits == 1 + 3
    fresh = Policy(model=tested.model, forbidden_ids=frozenset(), image_features=tested._image_features)
    plain = fresh.prefill(mixed)
    shown = ~torch.isinf(prefix.logits)
    torch.testing.assert_close(prefix.logits[shown], plain.logits[shown], atol=1e-4, rtol=1e-4)
    got, _ = tested.extend(prefix, ids_for(6))
    expected, _ = fresh.extend(plain, ids_for(6))
    shown = ~torch.isinf(got)
    torch.testing.assert_close(got[shown], expected[shown], atol=1e-4, rtol=1e-4)


@BOTH
@torch.inference_mode()
def test_what_is_kept_is_not_changed_by_who_goes_on_from_it(make) -> None:
    tested, (a, b, *_) = make()
    cache = PrefixCache(tested, max_tokens=10_000)
    first = cache.prefill([a, b])
    logits = first.logits.clone()
    on, longer = tested.extend(first, ids_for(2))
    tested.extend(longer.select([1]), ids_for(1))
    again = cache.prefill([a, b])
    assert torch.equal(again.logits, logits)
    assert torch.equal(tested.extend(again, ids_for(2))[0], on)


@torch.inference_mode()
def test_the_oldest_prompts_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, (a, long, c, d) = text_policy()
    counting = Counting(tested, monkeypatch)
    cache = PrefixCache(tested, max_tokens=100)
    for asked in ([a], [c], [d], [a, c, d], [long], [d], [long]):
        cache.prefill(asked)
    assert counting.read == [1, 1, 1, 1]
    cache.prefill([c])  # the long one pushed out a and c, in turn of age
    assert counting.read == [1, 1, 1, 1, 1]
    assert cache.prefill([long]).mask.shape == (1, 90)


@torch.inference_mode()
def test_a_prompt_longer_than_the_room_is_read_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, (_, long, *_) = text_policy()
    counting = Counting(tested, monkeypatch)
    cache = PrefixCache(tested, max_tokens=50)
    assert torch.equal(cache.prefill([long]).logits, cache.prefill([long]).logits)
    assert counting.read == [1, 1]


@torch.inference_mode()
def test_clearing_makes_everything_new(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, (a, b, *_) = text_policy()
    counting = Counting(tested, monkeypatch)
    cache = PrefixCache(tested, max_tokens=1000)
    cache.prefill([a, b])
    cache.clear()
    cache.prefill([a])
    assert counting.read == [2, 1]
