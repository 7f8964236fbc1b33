"""The policy of a run, whole: model, codec, engine and learner, around one set of weights."""

from dataclasses import dataclass
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from cairn.app.bodies import Body, build_body
from cairn.config.recipe import RunConfig
from cairn.config.tables import OptimizerOptions, ReinforcementOptions
from cairn.data.ids import PolicyVersion
from cairn.engines.transformers import TransformersEngine
from cairn.ports import BlobStore, Codec, Engine, Learner, Sampling
from cairn.train.guard import Bounds
from cairn.train.leading import LeadingLearner, follow
from cairn.train.learner import GradientLearner, Settings
from cairn.train.meeting import Meeting
from cairn.train.messages import ReceivedImages
from cairn.train.objective import Loss, Objective
from cairn.train.optimisation import Optimisation
from cairn.train.preference import PreferenceLoss, PreferenceObjective
from cairn.train.ranks import Group
from cairn.train.sharding import ShardedPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """What answers, and what makes it answer better."""

    codec: Codec
    engine: Engine
    learner: Learner
    sampling: Sampling


def build_brain(
    config: RunConfig, *, blobs: BlobStore, saved: Path | None = None, meeting: Meeting | None = None
) -> Brain:
    """The policy that a recipe describes, newly made, or as it was saved in the directory `saved`.

    In a `meeting` of several ranks the learner leads them, and the engine has a whole copy of its own.
    """
    options = config.policy
    disable_progress_bar()  # the run has its own
    begun = Path(options.start) if options.start else None
    body = build_body(options, seed=config.seed, blobs=blobs, saved=saved or begun)
    own = body.engine_type is not None or meeting is not None
    engine_policy = body.policy.copy(dtype=body.engine_type) if own else body.policy
    if meeting is None:
        learner = _learner(config, body)
        weights = body.policy.model.state_dict
    else:
        learner = LeadingLearner(_learner(config, body, group=meeting.group), meeting=meeting, blobs=blobs)
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


def _learner(config: RunConfig, body: Body, *, group: Group | None = None) -> GradientLearner:
    """With a `group` it holds a part of the weights, which are taken from the body's policy."""
    return GradientLearner(
        policy=body.policy if group is None else ShardedPolicy.of(body.policy, group.mesh),
        settings=_settings(config, body),
        save_processor=body.save_processor,
        ranks=group,
    )


def _settings(config: RunConfig, body: Body) -> Settings:
    learning = config.reinforcement
    loss, preference = _losses(learning)
    return Settings(
        imitation=_optimisation(config.imitation.optimizer),
        improvement=_optimisation(learning.optimizer),
        objective=Objective(
            loss=loss,
            dual_clip=learning.dual_clip,
            weight_cap=learning.weight_cap,
            clip_low=learning.clip_low,
            clip_high=learning.clip_high,
            correction=learning.correction,
            correction_low=learning.correction_low,
            correction_high=learning.correction_high,
            kl_coefficient=learning.kl,
            entropy_coefficient=learning.entropy,
            temperature=config.policy.temperature,
            epochs=learning.epochs,
            minibatches=learning.minibatches,
        ),
        preference=PreferenceObjective(loss=preference, beta=learning.beta, smoothing=learning.smoothing),
        bounds=Bounds(),
        max_tokens=config.policy.token_budget,
        placeholder_id=body.placeholder_id,
        image_tokens=body.image_tokens,
        seed=config.seed,
    )


def _losses(options: ReinforcementOptions) -> tuple[Loss, PreferenceLoss]:
    """Of `improve` and of `prefer`, of which a run calls one."""
    match options.loss:
        case "dpo" | "ipo" | "kto" as preference:
            return "ppo", preference
        case loss:
            return loss, "dpo"


def _optimisation(options: OptimizerOptions) -> Optimisation:
    return Optimisation(
        learning_rate=options.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        warmup_steps=options.warmup_steps,
        max_grad_norm=options.max_grad_norm,
    )
