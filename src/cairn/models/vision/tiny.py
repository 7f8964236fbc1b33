"""Tiny vision-language models of the real classes, with random weights: for tests, and to try a recipe offline.

Everything is made here: weights, a byte-level tokenizer with the family's special tokens, a chat template of the
family's shape and an image processor. The directory reads as one from a hub would.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BaseImageProcessor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipImageProcessorPil,
)

from cairn.errors import ConfigError
from cairn.models.vision.families import Family

MADE = (Family.QWEN2_5_VL, Family.QWEN3_VL, Family.IDEFICS3, Family.LLAVA)
"""Families of which tiny models can be made."""

_QWEN_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_IMAGE_TEMPLATE = """{% for message in messages %}{{ message.role | capitalize }}:{% for part in message.content %}\
{% if part.type == 'image' %}<image>{% else %} {{ part.text }}{% endif %}{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""
_LINES = (
    "Thought: I press the button. Action: click(start_box='(10,20)') type(content='text') finished()",
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [1, 2]}}\n</tool_call>',
    "<think></think><answer>[{'action': 'click', 'point': [10, 20], 'input_text': 'no input text'}]</answer>",
    '<answer>{"action": "CLICK", "point": [10, 20]}</answer> scroll down up left right',
    "Goal: click the button, then enter the text in the text field and press submit. Note: system user assistant",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySize:
    """How large a tiny model is. `image` is the side that screenshots are seen with, about, in pixels."""

    width: int = 64
    layers: int = 2
    vision_width: int = 32
    vision_layers: int = 2
    image: int = 112
    vocabulary: int = 512
    initial_range: float = 0.08


def make_tiny(
    family: Family, path: Path, *, size: TinySize | None = None, seed: int = 0, lines: Sequence[str] = ()
) -> None:
    """Write a model of `family` with random weights to the directory `path`; the same seed gives the same weights.

    The tokenizer is trained on `lines` beside its own, so that prompts of such words take few tokens.
    """
    if family not in MADE:
        raise ConfigError(f"no tiny model of {family} can be made; of {', '.join(MADE)} it can")
    shape = size or TinySize()
    tokenizer = _tokenizer(family, shape, lines)
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        model = _model(family, shape, tokenizer)
    path.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    _image_processor(family, shape).save_pretrained(path)


def _tokenizer(family: Family, shape: TinySize, lines: Sequence[str]) -> PreTrainedTokenizerFast:
    qwen = family.rotates_in_space
    special = _QWEN_TOKENS if qwen else _IMAGE_TOKENS
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    own.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(special),
        show_progress=False,
    )
    own.train_from_iterator([*_LINES, *lines] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        pad_token=special[0],
        eos_token=special[1],
        additional_special_tokens=list(special[2:]),
        chat_template=_QWEN_TEMPLATE if qwen else _IMAGE_TEMPLATE,
    )


_QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_IMAGE_TOKENS = (
    "<pad>",
    "<end_of_utterance>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
)


def _model(family: Family, shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """With normal weights a little larger than usual, so that logits are worth comparing."""
    match family:
        case Family.QWEN3_VL:
            model: PreTrainedModel = Qwen3VLForConditionalGeneration(_qwen3(shape, tokenizer))
        case Family.IDEFICS3:
            model = Idefics3ForConditionalGeneration(_idefics3(shape, tokenizer))
        case Family.LLAVA:
            model = LlavaForConditionalGeneration(_llava(shape, tokenizer))
        case _:
            model = Qwen2_5_VLForConditionalGeneration(_qwen2_5(shape, tokenizer))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=shape.initial_range)
    return model.eval()


def _text(shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> dict[str, object]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": shape.width,
        "intermediate_size": 2 * shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "initializer_range": shape.initial_range,
    }


def _sections(shape: TinySize) -> list[int]:
    """How a head's pairs of numbers are shared out among time, height and width."""
    pairs = shape.width // 4 // 2
    side = pairs * 3 // 8
    return [pairs - 2 * side, side, side]


def _qwen_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, object]:
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}


def _qwen2_5(shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": _sections(shape)}
    vision: dict[str, object] = {
        "depth": shape.vision_layers,
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_heads": 2,
        "out_hidden_size": shape.width,
        "window_size": 112,
        "fullatt_block_indexes": [shape.vision_layers - 1],
    }
    text = _text(shape, tokenizer) | {"rope_parameters": rope}
    return Qwen2_5_VLConfig.from_dict(_whole(text, vision) | _qwen_ids(tokenizer))


def _qwen3(shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> Qwen3VLConfig:
    rope = {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": _sections(shape),
        "mrope_interleaved": True,
    }
    vision: dict[str, object] = {
        "depth": shape.vision_layers,
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_heads": 2,
        "out_hidden_size": shape.width,
        "num_position_embeddings": 256,
        "deepstack_visual_indexes": [0],
    }
    text = _text(shape, tokenizer) | {"rope_parameters": rope, "head_dim": shape.width // 4}
    return Qwen3VLConfig.from_dict(_whole(text, vision) | _qwen_ids(tokenizer))


def _llama(shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> dict[str, object]:
    return _text(shape, tokenizer) | {"model_type": "llama"}


def _idefics3(shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> Idefics3Config:
    vision: dict[str, object] = {
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": 2,
        "image_size": _tile(shape),
        "patch_size": 14,
    }
    whole = _whole(_llama(shape, tokenizer), vision) | {"pad_token_id": tokenizer.pad_token_id, "scale_factor": 2}
    return Idefics3Config.from_dict(whole | {"image_token_id": tokenizer.convert_tokens_to_ids("<image>")})


def _llava(shape: TinySize, tokenizer: PreTrainedTokenizerFast) -> LlavaConfig:
    vision: dict[str, object] = {
        "model_type": "siglip_vision_model",
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": 2,
        "image_size": _tile(shape),
        "patch_size": 14,
        "vision_use_head": False,
    }
    whole = _whole(_llama(shape, tokenizer), vision) | {
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "image_token_id": tokenizer.convert_tokens_to_ids("<image>"),
    }
    return LlavaConfig.from_dict(whole)


def _whole(text: dict[str, object], vision: dict[str, object]) -> dict[str, object]:
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": True}


def _tile(shape: TinySize) -> int:
    """Half of the screenshot's side, in whole pairs of patches."""
    return max(28, shape.image // 2 // 28 * 28)


def _image_processor(family: Family, shape: TinySize) -> BaseImageProcessor:
    tile = _tile(shape)
    match family:
        case Family.QWEN3_VL:
            halves = [0.5, 0.5, 0.5]
            return Qwen2VLImageProcessorPil(patch_size=16, size=_bounds(shape, 32), image_mean=halves, image_std=halves)
        case Family.IDEFICS3:
            return Idefics3ImageProcessorPil(
                size={"longest_edge": 2 * tile}, max_image_size={"longest_edge": tile}, do_image_splitting=True
            )
        case Family.LLAVA:
            return SiglipImageProcessorPil(size={"height": tile, "width": tile})
        case _:
            return Qwen2VLImageProcessorPil(size=_bounds(shape, 28))


def _bounds(shape: TinySize, least: int) -> dict[str, int]:
    return {"shortest_edge": least * least, "longest_edge": max(least * least, shape.image * shape.image)}
