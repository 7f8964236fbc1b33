"""The models that a recipe can name, each with the codec and the processor that belong to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError

from cairn.app.preparing import begin, engine_type, loading_type, prepared
from cairn.app.sight import require_sight
from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.past import Telling, TextHistory
from cairn.codecs.pixel import PixelCodec
from cairn.codecs.text import TextCodec
from cairn.codecs.thinking import ThinkingCodec
from cairn.codecs.vision import History, VisionCodec
from cairn.config.tables import PolicyOptions
from cairn.data.coordinates import CoordinateSpace
from cairn.data.ids import ImageId
from cairn.data.pixel_vocabulary import PixelVocabulary, Verb
from cairn.errors import ConfigError, StoreError
from cairn.models.loading import load_language_model, load_vision_model
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.modeling import PixelForCausalLM, register
from cairn.models.pixel.processing import PixelFeatures, PixelImageProcessor
from cairn.models.policy import Policy
from cairn.models.smollm2 import ensure_smollm2
from cairn.models.tokenizer import HubTokenizer
from cairn.models.vision.eyes import VisionEyes
from cairn.models.vision.families import require_family
from cairn.models.vision.processing import Viewing, VisionProcessor
from cairn.ports import BlobStore, Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A model with all that belongs to it."""

    policy: Policy  # of the learner: float32 weights
    codec: Codec
    placeholder_id: int | None  # the token that stands for an image
    image_tokens: Callable[[ImageId], int] | None = None  # where an image has several
    engine_type: torch.dtype | None  # of the engine's own copy; None: it shares the learner's weights
    save_processor: Callable[[Path], None]


def build_body(options: PolicyOptions, *, seed: int, blobs: BlobStore, saved: Path | None) -> Body:
    """The model that the recipe names, or the one saved in the directory `saved`."""
    match options.model:
        case "pixel":
            return _pixel(options, seed=seed, blobs=blobs, saved=saved)
        case "smollm2":
            return _language(options, ensure_smollm2(), seed=seed, saved=saved)
        case "path" if options.sees:
            return _vision(options, Path(options.path or ""), seed=seed, saved=saved, blobs=blobs)
        case "path":
            return _language(options, Path(options.path or ""), seed=seed, saved=saved)


def _pixel(options: PolicyOptions, *, seed: int, blobs: BlobStore, saved: Path | None) -> Body:
    register()
    model = _new_pixel(seed) if saved is None else saved_pixel(saved)
    shape = model.config
    codec = PixelCodec(
        vocabulary=shape.vocabulary,
        crop=shape.crop,
        characters=shape.characters,
        history=shape.history,
        verbs=_verbs(options.verbs),
    )
    processor = PixelImageProcessor(crop=shape.crop)

    def save_processor(folder: Path) -> None:
        processor.save_pretrained(folder)

    policy = Policy(
        model=prepared(model, options, seed=seed),
        forbidden_ids=codec.forbidden_ids,
        image_features=PixelFeatures(blobs=blobs, processor=processor),
        autocast=torch.bfloat16 if options.autocast else None,
    )
    return Body(
        policy=policy,
        codec=codec,
        placeholder_id=PixelVocabulary.IMAGE,
        engine_type=_engine_type(options, policy),
        save_processor=save_processor,
    )


def saved_pixel(path: Path) -> PixelForCausalLM:
    """The pixel policy that a directory holds."""
    try:
        return PixelForCausalLM.from_pretrained(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise StoreError(f"the policy in {path} is damaged: {error}") from error


def _verbs(names: Sequence[str] | None) -> frozenset[Verb] | None:
    unknown = [name for name in names or () if name not in set(Verb)]
    if unknown:
        raise ConfigError(f"policy.verbs: no verb {unknown[0]!r}; there are: {', '.join(Verb)}")
    return None if names is None else frozenset(Verb(name) for name in names)


def _language(options: PolicyOptions, path: Path, *, seed: int, saved: Path | None) -> Body:
    begun = begin(options, path, saved=saved)
    tokenizer = HubTokenizer.load(begun.base)
    codec = _text_codec(options, tokenizer)
    policy = Policy(
        model=prepared(
            load_language_model(begun.base, dtype=loading_type(options)), options, seed=seed, adapter=begun.adapter
        ),
        forbidden_ids=codec.forbidden_ids,
        autocast=torch.bfloat16 if options.autocast else None,
    )
    tokenizer.require_size(policy.vocabulary)
    return Body(
        policy=policy,
        codec=codec,
        placeholder_id=None,
        engine_type=_engine_type(options, policy),
        save_processor=tokenizer.save,
    )


def _vision(options: PolicyOptions, path: Path, *, seed: int, saved: Path | None, blobs: BlobStore) -> Body:
    begun = begin(options, path, saved=saved)
    family = require_family(begun.base, codec=options.codec)
    space = None if options.coordinates == "auto" else CoordinateSpace(options.coordinates)
    processor = VisionProcessor.load(
        begun.base, family=family, blobs=blobs, viewing=Viewing(space=space, most_tokens=options.max_image_tokens)
    )
    codec = VisionCodec(
        processor=processor,
        dialect=Dialect(options.codec),
        history=History(images=options.images, turns=options.past_turns, instructed=options.instructions),
        think=options.think,
    )
    eyes = VisionEyes(processor)
    policy = Policy(
        model=prepared(
            load_vision_model(begun.base, dtype=loading_type(options)), options, seed=seed, adapter=begun.adapter
        ),
        forbidden_ids=codec.forbidden_ids,
        eyes=eyes,
        autocast=torch.bfloat16 if options.autocast else None,
    )
    require_sight(policy, codec=codec, blobs=blobs)
    return Body(
        policy=policy,
        codec=codec,
        placeholder_id=processor.placeholder_id,
        image_tokens=eyes.tokens,
        engine_type=_engine_type(options, policy),
        save_processor=processor.save,
    )


def _text_codec(options: PolicyOptions, tokenizer: HubTokenizer) -> Codec:
    history = TextHistory(telling=Telling(options.history), turns=options.past_turns, instructed=options.instructions)
    match options.codec:
        case "text":
            return TextCodec(tokenizer=tokenizer, history=history)
        case "thinking":
            if not tokenizer.has_template:
                raise ConfigError(
                    'policy.codec = "thinking" needs a model with a chat template: copy chat_template.jinja from the '
                    'original model, or choose policy.codec = "text"'
                )
            return ThinkingCodec(tokenizer=tokenizer, think=options.think, history=history)
        case _:
            raise ConfigError('a language model needs policy.codec = "text" or "thinking"')


def _engine_type(options: PolicyOptions, policy: Policy) -> torch.dtype | None:
    """None where the engine shares the learner's weights."""
    wanted = engine_type(options, policy.model)
    return None if wanted is policy.model.dtype else wanted


def _new_pixel(seed: int) -> PixelForCausalLM:
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return PixelForCausalLM(PixelConfig())
