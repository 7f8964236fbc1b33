"""Which training task comes next, where its rollouts start and how far they go: the scheduler that a recipe names."""

from collections.abc import Sequence

from cairn.config.recipe import RunConfig
from cairn.data.checkpoint import Track
from cairn.data.matching import Matching, PlaceRule, TextRule
from cairn.data.recorded import RecordedState
from cairn.data.task import Template
from cairn.data.trajectory import ScoredGroup
from cairn.ports import Scheduler
from cairn.schedule.adaptive import Adaptive, AdaptiveOptions
from cairn.schedule.bandit import BanditOptions, LearningProgress
from cairn.schedule.orders import Writer
from cairn.schedule.pivots import PivotOptions, PivotRounds
from cairn.schedule.plans import RootPlans
from cairn.schedule.recorded import RecordedRounds
from cairn.schedule.round_robin import RoundRobin
from cairn.schedule.signals import Selection, Signal
from cairn.schedule.stored import StoredRounds
from cairn.schedule.tasks import CoolDown, Shrinking, TaskRounds
from cairn.schedule.variance import SuccessVariance


def build_scheduler(
    config: RunConfig,
    templates: Sequence[Template],
    tracks: Sequence[Track],
    *,
    states: Sequence[RecordedState] = (),
    known: Sequence[ScoredGroup] = (),
) -> Scheduler:
    """What the recipe names. `states` are the recorded ones to learn at, `known` what was played before."""
    options = config.reinforcement
    plans = RootPlans(
        group_size=options.group_size,
        seed=config.seed,
        start_index=config.demonstrations.per_template,  # the tasks before it are known by heart
        max_turns=config.rollout.max_turns,
    )
    match options.scheduler:
        case "round_robin" | "variance" as name:
            fresh = RoundRobin if name == "round_robin" else SuccessVariance
            return fresh(templates=templates, plans=plans)
        case "recorded" | "stored":
            return _given(config, states, known)
        case "tasks":
            return _task_rounds(config, tracks)
        case "pivots":
            return PivotRounds(
                tracks=tracks,
                writer=_writer(config),
                selection=_selection(config),
                options=PivotOptions(
                    answers=config.adaptive.answers,
                    survey_every=config.adaptive.survey_every,
                    weighted=config.adaptive.weighted,
                ),
            )
        case "progress":
            return LearningProgress(
                tracks=tracks, writer=_writer(config), options=BanditOptions(size=config.adaptive.suffixes)
            )
        case "adaptive":
            return Adaptive(
                tracks=tracks,
                writer=_writer(config),
                selection=_selection(config),
                options=AdaptiveOptions(**config.adaptive.model_dump(exclude=_NOT_OF_STAGE_TWO)),
            )


def _given(config: RunConfig, states: Sequence[RecordedState], known: Sequence[ScoredGroup]) -> Scheduler:
    options = config.reinforcement
    if options.scheduler == "stored":
        return StoredRounds(plans=[group.plan for group in known], seed=config.seed)
    return RecordedRounds(states=states, group_size=options.group_size, seed=config.seed)


def _task_rounds(config: RunConfig, tracks: Sequence[Track]) -> TaskRounds:
    shrink, cool = config.tracks.shrink_above, config.tracks.cool_down_after
    return TaskRounds(
        tasks=[track.task for track in tracks],
        group_size=config.reinforcement.group_size,
        seed=config.seed,
        max_turns=config.rollout.max_turns,
        shrinking=None if shrink is None else Shrinking(above=shrink),
        cool_down=None if cool is None else CoolDown(after=cool),
    )


def _writer(config: RunConfig) -> Writer:
    return Writer(name=config.reinforcement.scheduler, seed=config.seed, max_turns=config.rollout.max_turns)


def _selection(config: RunConfig) -> Selection:
    options = config.adaptive
    return Selection(signal=Signal(options.signal), threshold=options.threshold, rules=matching_rules(config))


_NOT_OF_STAGE_TWO = {"signal", "threshold", "tolerance", "places", "text", "lenient", "survey_every", "weighted"}


def matching_rules(config: RunConfig) -> Matching:
    """When two actions are the same."""
    options = config.adaptive
    return Matching(tolerance=options.tolerance, text=TextRule(options.text), places=PlaceRule(options.places))
