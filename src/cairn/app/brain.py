"""The policy of a run, whole: model, codec, engine and learner, around one set of weights."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from cairn.codecs.pixel import PixelCodec
from cairn.config import OptimizerOptions, RunConfig
from cairn.data.ids import PolicyVersion
from cairn.data.pixel_vocabulary import PixelVocabulary
from cairn.engines.transformers import TransformersEngine
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.modeling import PixelForCausalLM, register
from cairn.models.pixel.processing import PixelFeatures, PixelImageProcessor
from cairn.models.policy import Policy
from cairn.ports import BlobStore, Codec, Engine, Learner, Sampling
from cairn.train.learner import GradientLearner, Objective, Settings
from cairn.train.optimisation import Optimisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """What answers, and what makes it answer better."""

    codec: Codec
    engine: Engine
    learner: Learner
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """A model with all that belongs to it."""

    policy: Policy
    codec: Codec
    placeholder_id: int | None
    save_processor: Callable[[Path], None]


def build_brain(config: RunConfig, *, blobs: BlobStore, saved: Path | None = None) -> Brain:
    """The policy that a recipe describes, newly made, or as it was saved in the directory `saved`."""
    options = config.policy
    torch.set_num_threads(options.threads)
    disable_progress_bar()  # the run has its own
    body = _pixel(config, blobs=blobs, saved=saved)
    learner = GradientLearner(
        policy=body.policy,
        settings=_settings(config, placeholder_id=body.placeholder_id),
        save_processor=body.save_processor,
    )
    engine = TransformersEngine(policy=body.policy, stop_ids=body.codec.stop_ids, version=PolicyVersion(0))
    limit = options.max_answer_tokens or body.codec.max_answer_tokens
    return Brain(
        codec=body.codec,
        engine=engine,
        learner=learner,
        sampling=Sampling(temperature=options.temperature, max_tokens=limit),
    )


def _pixel(config: RunConfig, *, blobs: BlobStore, saved: Path | None) -> _Body:
    register()
    model = _new_pixel(config.seed) if saved is None else PixelForCausalLM.from_pretrained(saved)
    shape = model.config
    codec = PixelCodec(vocabulary=shape.vocabulary, crop=shape.crop, characters=shape.characters, history=shape.history)
    processor = PixelImageProcessor(crop=shape.crop)

    def save_processor(folder: Path) -> None:
        processor.save_pretrained(folder)

    policy = Policy(
        model=model,
        forbidden_ids=codec.forbidden_ids,
        image_features=PixelFeatures(blobs=blobs, processor=processor),
        autocast=torch.bfloat16 if config.policy.autocast else None,
    )
    return _Body(
        policy=policy,
        codec=codec,
        placeholder_id=PixelVocabulary.IMAGE,
        save_processor=save_processor,
    )


def _new_pixel(seed: int) -> PixelForCausalLM:
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return PixelForCausalLM(PixelConfig())


def _settings(config: RunConfig, *, placeholder_id: int | None) -> Settings:
    learning = config.reinforcement
    return Settings(
        imitation=_optimisation(config.imitation.optimizer),
        improvement=_optimisation(learning.optimizer),
        objective=Objective(
            clip_low=learning.clip_low,
            clip_high=learning.clip_high,
            kl_coefficient=learning.kl,
            entropy_coefficient=learning.entropy,
            temperature=config.policy.temperature,
            epochs=learning.epochs,
            minibatches=learning.minibatches,
        ),
        max_tokens=config.policy.token_budget,
        placeholder_id=placeholder_id,
        seed=config.seed,
    )


def _optimisation(options: OptimizerOptions) -> Optimisation:
    return Optimisation(
        learning_rate=options.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        warmup_steps=options.warmup_steps,
        max_grad_norm=options.max_grad_norm,
    )
