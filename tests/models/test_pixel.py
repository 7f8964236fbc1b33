"""The pixel policy keeps the contract of a causal language model, and its grammar."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoModelForCausalLM

from cairn.codecs.pixel import PixelCodec
from cairn.data.action import Click, Invalid, Point, Type
from cairn.data.ids import ImageId
from cairn.data.pixel_vocabulary import Crop, Verb
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.modeling import PixelCache, PixelForCausalLM, register
from cairn.models.pixel.processing import PixelFeatures, PixelImageProcessor
from shown_pages import page, turn

GOAL = 'Enter "ada lovelace" and press the green button'


@pytest.fixture
def model() -> PixelForCausalLM:
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        made = PixelForCausalLM(PixelConfig(width=16, fine=8, text_width=16, blocks=2, text_layers=1)).eval()
        for parameter in made.parameters():  # off its neutral start, so that every path matters
            torch.nn.init.normal_(parameter, std=0.2)
    return made


@pytest.fixture
def codec(model: PixelForCausalLM) -> PixelCodec:
    return PixelCodec(vocabulary=model.config.vocabulary, crop=model.config.crop)


def prompts(codec: PixelCodec) -> tuple[Tensor, Tensor]:
    """Two left-padded prompts, of different lengths: at the start, and after a click and some typing."""
    seen = page()
    past = [turn(Click(Point(0.4, 0.6)), seen), turn(Type("ada"), seen)]
    rows = [codec.prompt(GOAL, [], seen).token_ids, codec.prompt(GOAL, past, seen).token_ids]
    width = max(len(r) for r in rows)
    ids = torch.zeros(2, width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.from_numpy(row.astype(np.int64))
    return ids, (ids != 0).long()


def pixels(seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (2, 3, 160, 160), np.uint8))


def prefill(model: PixelForCausalLM, ids: Tensor, mask: Tensor, seen: Tensor) -> tuple[Tensor, PixelCache]:
    out = model(input_ids=ids, attention_mask=mask, pixel_values=seen, logits_to_keep=1)
    assert out.logits is not None
    assert out.past_key_values is not None
    return out.logits, out.past_key_values


def answers(model: PixelForCausalLM) -> Tensor:
    layout = model.config.vocabulary
    drag = [layout.verb_id(Verb.DRAG), layout.source + 77, layout.place + 1]
    return torch.tensor([[layout.start + 1, layout.end + 2, 0], drag])


@torch.no_grad()
def test_answers_fed_token_by_token_all_at_once_or_with_the_prompt_have_equal_logits(
    model: PixelForCausalLM, codec: PixelCodec
):
    ids, mask = prompts(codec)
    said = answers(model)
    _, cache = prefill(model, ids, mask, pixels())
    together = model(input_ids=said, past_key_values=cache).logits
    first, cache = prefill(model, ids, mask, pixels())
    single = torch.cat([model(input_ids=said[:, i : i + 1], past_key_values=cache).logits for i in range(3)], 1)
    torch.testing.assert_close(single, together)
    whole = torch.cat([ids, said], 1)
    flat = model(input_ids=whole, attention_mask=torch.ones_like(whole), pixel_values=pixels(), logits_to_keep=4).logits
    torch.testing.assert_close(flat, torch.cat([first, together], 1))


@torch.no_grad()
def test_padding_and_batch_mates_do_not_change_a_prompt(model: PixelForCausalLM, codec: PixelCodec):
    ids, mask = prompts(codec)
    both, _ = prefill(model, ids, mask, pixels())
    length = int(mask[0].sum())
    alone, _ = prefill(model, ids[:1, -length:], mask[:1, -length:], pixels()[:1])
    torch.testing.assert_close(alone[0], both[0])


@torch.no_grad()
def test_cache_rows_are_selected_and_repeated(model: PixelForCausalLM, codec: PixelCodec):
    ids, mask = prompts(codec)
    said = answers(model)
    _, cache = prefill(model, ids, mask, pixels())
    wanted = model(input_ids=said, past_key_values=cache).logits
    _, cache = prefill(model, ids, mask, pixels())
    cache.batch_select_indices(torch.tensor([1, 0, 1]))
    chosen = model(input_ids=said[[1, 0, 1]], past_key_values=cache).logits
    torch.testing.assert_close(chosen, wanted[[1, 0, 1]])
    _, cache = prefill(model, ids, mask, pixels())
    cache.batch_repeat_interleave(2)
    repeated = model(input_ids=said.repeat_interleave(2, 0), past_key_values=cache).logits
    torch.testing.assert_close(repeated, wanted.repeat_interleave(2, 0))


def test_every_parameter_gets_a_gradient_through_selected_rows(model: PixelForCausalLM, codec: PixelCodec):
    ids, mask = prompts(codec)
    first, cache = prefill(model, ids, mask, pixels())
    cache.batch_select_indices(torch.tensor([0, 1, 1]))
    rest = model(input_ids=answers(model)[[0, 1, 1]], past_key_values=cache).logits
    (first.log_softmax(-1).square().mean() + rest.log_softmax(-1).square().mean()).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


@torch.no_grad()
def test_a_saved_model_answers_the_same(model: PixelForCausalLM, codec: PixelCodec, tmp_path: Path):
    register()
    register()
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again, PixelForCausalLM)
    assert again.config.vocabulary == model.config.vocabulary
    ids, mask = prompts(codec)
    before, after = prefill(model, ids, mask, pixels())[0], prefill(again.eval(), ids, mask, pixels())[0]
    assert torch.equal(before, after)


def test_the_default_model_has_between_one_and_five_million_parameters():
    assert 1_000_000 < PixelForCausalLM(PixelConfig()).num_parameters() < 5_000_000


@torch.no_grad()
@pytest.mark.parametrize("part", ["image", "goal", "past"])
def test_what_is_shown_changes_what_is_said(model: PixelForCausalLM, codec: PixelCodec, part: str):
    ids, mask = prompts(codec)
    before, _ = prefill(model, ids, mask, pixels())
    layout = model.config.vocabulary
    seen = pixels(1) if part == "image" else pixels()
    if part == "goal":
        ids = torch.where((ids >= layout.word) & (ids < layout.shape), layout.word, ids)
    if part == "past":
        ids = torch.where(ids >= layout.place, layout.place, ids)
    after, _ = prefill(model, ids, mask, seen)
    assert (before[1] - after[1]).abs().max() > 1e-4


@torch.no_grad()
def test_nothing_invalid_can_be_sampled_from_a_random_model(model: PixelForCausalLM, codec: PixelCodec):
    rng = torch.Generator().manual_seed(0)
    ids, mask = prompts(codec)
    logits, cache = prefill(model, ids, mask, pixels())
    cache.batch_repeat_interleave(200)
    logits = logits[:, -1].repeat_interleave(200, 0) / 8  # hot, so that rare answers come up
    said = torch.zeros(400, 0, dtype=torch.long)
    for _ in range(3):
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=rng)
        said = torch.cat([said, drawn], 1)
        logits = model(input_ids=drawn, past_key_values=cache).logits[:, -1]
    read = set()
    for row in said.tolist():
        end = next(i for i, token in enumerate(row) if token in codec.stop_ids)
        action = codec.parse(GOAL, np.array(row[: end + 1], np.int32), page())
        assert not isinstance(action, Invalid), action
        read.add(type(action).__name__)
    assert {"Click", "Type"} <= read


@torch.no_grad()
def test_what_may_follow_is_exactly_what_the_codec_can_read(model: PixelForCausalLM, codec: PixelCodec):
    layout = model.config.vocabulary
    words = 8  # in the goal
    places = set(range(layout.place, layout.size))
    sources = set(range(layout.source, layout.place))
    alone = {layout.verb_id(verb) for verb in Verb}
    first = alone | places | set(range(layout.start, layout.start + words))
    wanted = [
        (layout.ACT, first),
        (layout.start + 3, set(range(layout.end + 3, layout.end + words))),
        (layout.verb_id(Verb.HOVER), places),
        (layout.verb_id(Verb.DRAG), sources),
        (layout.source + 9, places),
    ]
    ids, mask = prompts(codec)
    _, cache = prefill(model, ids, mask, pixels())
    logits = model(input_ids=torch.tensor([[token for token, _ in wanted]] * 2), past_key_values=cache).logits[0]
    for (token, legal), row in zip(wanted, logits, strict=True):
        assert set((row > -1e3).nonzero()[:, 0].tolist()) == legal, token


@torch.no_grad()
def test_special_and_prompt_tokens_have_no_probability(model: PixelForCausalLM, codec: PixelCodec):
    logits, _ = prefill(model, *prompts(codec), pixels())
    assert float(logits.softmax(-1)[..., sorted(codec.forbidden_ids)].sum()) == 0.0


def test_a_prompt_without_its_screenshot_is_refused(model: PixelForCausalLM, codec: PixelCodec):
    with pytest.raises(ValueError, match="pixel_values"):
        model(*prompts(codec))


def test_sizes_that_do_not_fit_each_other_are_refused():
    with pytest.raises(ValueError, match="grid x patch"):
        PixelConfig(grid=20)


def test_the_processor_cuts_pads_and_survives_saving(tmp_path: Path):
    image = Image.new("RGB", (160, 210))
    image.putpixel((3, 55), (1, 2, 3))
    processor = PixelImageProcessor(crop=Crop())
    processor.save_pretrained(tmp_path)
    cut = PixelImageProcessor.from_pretrained(tmp_path)([image, Image.new("L", (20, 60), 255)])["pixel_values"]
    assert cut.shape == (2, 3, 160, 160)
    assert cut.dtype == torch.uint8
    assert cut[0, :, 5, 3].tolist() == [1, 2, 3]
    assert int((cut[1, 0] > 0).sum()) == 20 * 10


class CountingBlobs:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def put(self, data: bytes) -> ImageId:
        raise NotImplementedError

    def get(self, image: ImageId) -> bytes:
        self.reads += 1
        return self.data


def test_screenshots_are_decoded_once_while_they_are_kept():
    file = io.BytesIO()
    Image.new("RGB", (160, 210), (9, 9, 9)).save(file, "PNG")
    blobs = CountingBlobs(file.getvalue())
    features = PixelFeatures(blobs=blobs, processor=PixelImageProcessor(crop=Crop()), keep=2)
    a, b, c = (ImageId(name) for name in "abc")
    assert features([a, b, a])["pixel_values"].shape == (3, 3, 160, 160)
    assert blobs.reads == 2
    features([c])
    features([a])
    features([b])
    assert blobs.reads == 4
