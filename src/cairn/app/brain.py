"""The policy of a run, whole: model, codec, engine and learner, around one set of weights."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from cairn.app.bodies import Body, build_body
from cairn.config.recipe import RunConfig
from cairn.config.tables import OptimizerOptions, ReinforcementOptions
from cairn.data.ids import PolicyVersion
from cairn.engines.transformers import TransformersEngine
from cairn.models.adapters import plain_weights
from cairn.ports import BlobStore, Codec, Engine, Learner, Sampling
from cairn.train.critic import CriticSettings
from cairn.train.guard import Bounds
from cairn.train.leading import LeadingLearner, follow
from cairn.train.learner import GradientLearner, Settings
from cairn.train.meeting import Meeting
from cairn.train.messages import ReceivedImages
from cairn.train.objective import KlEstimator, Loss, Objective
from cairn.train.optimisation import Optimisation
from cairn.train.preference import PreferenceLoss, PreferenceObjective
from cairn.train.ranks import Group
from cairn.train.reference import Following
from cairn.train.sharding import ShardedPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """What answers, and what makes it answer better."""

    codec: Codec
    engine: Engine
    learner: Learner
    sampling: Sampling


def build_brain(
    config: RunConfig,
    *,
    blobs: BlobStore,
    saved: Path | None = None,
    refused: Path | None = None,
    meeting: Meeting | None = None,
) -> Brain:
    """The policy that a recipe describes, newly made, or as it was saved in the directory `saved`.

    Batches that its learner refuses are kept in the directory `refused`. In a `meeting` of several ranks the learner
    leads them, and the engine has a whole copy of its own.
    """
    options = config.policy
    disable_progress_bar()  # the run has its own
    begun = Path(options.start) if options.start else None
    body = build_body(options, seed=config.seed, blobs=blobs, saved=saved or begun)
    own = body.engine_type is not None or meeting is not None
    engine_policy = body.policy.copy(dtype=body.engine_type) if own else body.policy
    if meeting is None:
        learner = _learner(config, body, refused=refused)
        weights = partial(plain_weights, body.policy.model)
    else:
        led = _learner(config, body, group=meeting.group, refused=refused)
        learner = LeadingLearner(led, meeting=meeting, blobs=blobs)
        weights = learner.weights
    engine = TransformersEngine(
        policy=engine_policy,
        stop_ids=body.codec.stop_ids,
        version=PolicyVersion(0),
        weights=weights if own else None,
    )
    limit = options.max_answer_tokens or body.codec.max_answer_tokens
    return Brain(
        codec=body.codec,
        engine=engine,
        learner=learner,
        sampling=Sampling(temperature=options.temperature, max_tokens=limit),
    )


def follow_brain(config: RunConfig, *, meeting: Meeting) -> None:
    """The learner of a rank that follows, until rank 0 says that the run is over."""
    disable_progress_bar()
    images = ReceivedImages()
    begun = Path(config.policy.start) if config.policy.start else None
    body = build_body(config.policy, seed=config.seed, blobs=images, saved=begun)
    follow(_learner(config, body, group=meeting.group), meeting=meeting, images=images)


def _learner(
    config: RunConfig, body: Body, *, group: Group | None = None, refused: Path | None = None
) -> GradientLearner:
    """With a `group` it holds a part of the weights, which are taken from the body's policy."""
    return GradientLearner(
        policy=body.policy if group is None else ShardedPolicy.of(body.policy, group.mesh),
        settings=replace(_settings(config, body), refused=refused),
        save_processor=body.save_processor,
        ranks=group,
    )


def _settings(config: RunConfig, body: Body) -> Settings:
    learning = config.reinforcement
    loss, preference = _losses(learning)
    return Settings(
        imitation=_optimisation(config.imitation.optimizer, steps=config.imitation.updates or 0),
        improvement=_optimisation(learning.optimizer, steps=_steps(learning)),
        objective=Objective(
            loss=loss,
            dual_clip=learning.dual_clip,
            weight_cap=learning.weight_cap,
            weight_floor=learning.weight_floor,
            gate_temperatures=(learning.gate_temperature, learning.negative_gate_temperature),
            clip_low=learning.clip_low,
            clip_high=learning.clip_high,
            correction=learning.correction,
            correction_low=learning.correction_low,
            correction_high=learning.correction_high,
            kl_coefficient=learning.kl,
            kl_estimator=_kl_estimator(learning),
            kl_in_reward=learning.kl_in == "reward",
            entropy_coefficient=learning.entropy,
            temperature=config.policy.temperature,
            epochs=learning.epochs,
            minibatches=learning.minibatches,
        ),
        preference=PreferenceObjective(
            loss=preference,
            beta=learning.beta,
            smoothing=learning.smoothing,
            desirable_weight=learning.desirable_weight,
            undesirable_weight=learning.undesirable_weight,
        ),
        critic=_critic(learning) if learning.estimator == "gae" and not learning.prefers else None,
        following=Following(kept=learning.reference_ema, every=learning.reference_every),
        bounds=Bounds(),
        max_tokens=config.policy.token_budget,
        placeholder_id=body.placeholder_id,
        image_tokens=body.image_tokens,
        foreign=learning.scheduler == "stored",
        seed=config.seed,
    )


def _kl_estimator(options: ReinforcementOptions) -> KlEstimator:
    if options.kl_estimator == "auto":
        return "k1" if options.kl_in == "reward" else "k3"
    return options.kl_estimator


def _critic(options: ReinforcementOptions) -> CriticSettings:
    own = options.critic
    return CriticSettings(
        optimisation=_optimisation(own.optimizer, steps=_steps(options)),
        clip=own.clip,
        alone=own.alone * options.epochs * options.minibatches,
    )


def _losses(options: ReinforcementOptions) -> tuple[Loss, PreferenceLoss]:
    """Of `improve` and of `prefer`, of which a run calls one."""
    match options.loss:
        case "dpo" | "ipo" | "kto" as preference:
            return "ppo", preference
        case loss:
            return loss, "dpo"


def _steps(options: ReinforcementOptions) -> int:
    """How many the optimiser takes, where every update has a gradient."""
    return (options.updates or 0) * options.epochs * options.minibatches


def _optimisation(options: OptimizerOptions, *, steps: int) -> Optimisation:
    return Optimisation(
        learning_rate=options.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        warmup_steps=options.warmup_steps,
        schedule=options.schedule,
        steps=steps,
        final_share=options.final_share,
        max_grad_norm=options.max_grad_norm,
        state=options.state,
    )
