"""A run, put together: environment, policy, rollouts, schedule and record, from one recipe."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.app.crediting import build_crediting
from cairn.app.lesson_weights import lesson_weights
from cairn.app.recorded import Recording
from cairn.app.rewards import RewardParts, build_composition, build_judge, check_states
from cairn.app.schedulers import build_scheduler, matching_rules
from cairn.app.stored import worth_learning
from cairn.config.recipe import RunConfig
from cairn.config.tables import RolloutOptions
from cairn.data import ledger as ledgers
from cairn.data.checkpoint import Track
from cairn.data.ids import TemplateId
from cairn.data.recorded import RecordedState
from cairn.data.task import RolloutPlan, Split, Task, Template
from cairn.data.trajectory import ScoredGroup
from cairn.engines.chat import ChatEndpoint, ChatExpert
from cairn.evaluate.recorded import RecordedEvaluator
from cairn.evaluate.run import Evaluator, Examiner, Play
from cairn.loop.budget import Budget
from cairn.loop.course import Course, CourseOptions, Demonstrate, Measuring
from cairn.loop.demonstrations import Demonstrations
from cairn.loop.experts import ExpertPlayer
from cairn.loop.imitation import Curriculum
from cairn.loop.lessons import RecordedLessons
from cairn.loop.sync import Replay, SyncLoop, as_they_are
from cairn.loop.tracks import TrackCollector, Tries
from cairn.ports import Composition, Environment, EventSink, Sampling
from cairn.rewards.match import ByStart, ExpertMatch, OnTheWay
from cairn.rewards.outcome import Success
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.clock import LoopClock
from cairn.rollout.demonstrate import ask_expert
from cairn.rollout.episode import EpisodeRunner, Limits
from cairn.rollout.group import GroupRunner, Judging, Note, Record, forget
from cairn.rollout.replay import ReplayOptions, SuccessReplay, Trigger
from cairn.rollout.runner import RolloutRunner
from cairn.rollout.stored import StoredGroups
from cairn.snapshot_ports import SnapshotKeeper
from cairn.store.run import Run, RunWriter

if TYPE_CHECKING:
    from cairn.app.brain import Brain


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run is made of, besides its recipe."""

    environment: Environment
    templates: Sequence[Template]
    brain: "Brain"
    events: EventSink
    run: RunWriter
    keeper: SnapshotKeeper | None = None  # where sessions can be saved
    record: Recording | None = None  # of a set of recorded states
    training: Sequence[RecordedState] = ()  # of which the policy learns from these
    stored: Run | None = None  # what is learned from in the place of rollouts


def build_course(config: RunConfig, parts: Parts, *, control: bool, tracks: Sequence[Track]) -> Course:
    """The whole run, not yet started. `tracks` are what `collect_tracks` found."""
    recorded = [state.start for state in parts.training]
    ways = [checkpoint.answered() for track in tracks for checkpoint in track.checkpoints]
    check_states(config.reward, parts.brain.codec, [*recorded, *ways])
    runner = recording_runner(config, parts, tracks=tracks)
    return Course(
        loop=build_loop(config, parts, runner, tracks=tracks),
        evaluator=build_examiner(config, parts, runner),
        templates=parts.templates,
        demonstrate=_lessons(config, parts, runner),
        options=_course_options(config, control=control),
        folder=parts.run.path,
    )


def recording_runner(config: RunConfig, parts: Parts, *, tracks: Sequence[Track]) -> RolloutRunner:
    """Rollouts that the run's directory keeps."""
    runner = build_runner(
        config,
        environment=parts.environment,
        brain=parts.brain,
        events=parts.events,
        record=parts.run.record,
        note=parts.run.note,
    )
    composition = run_composition(config, parts)
    judging = replace(runner.groups.judging, composition=composition)
    if not config.adaptive.lenient:
        return replace(runner, groups=replace(runner.groups, judging=judging))
    lenient = OnTheWay(
        match=judging.reward,
        sessions=parts.environment,
        tracks=tracks,
        tried=lambda task: parts.run.count(ledgers.of_trial(task.template.id)),
    )
    return replace(runner, groups=replace(runner.groups, judging=replace(judging, reward=lenient)))


def run_composition(config: RunConfig, parts: Parts) -> Composition | None:
    """The composed reward of a run; a `ConfigError` names a term that its codec or judge can never fulfil."""
    return build_composition(
        config.reward,
        RewardParts(
            codec=parts.brain.codec,
            judge=build_judge(config.reward.judge, folder=parts.run.path),
            longest=parts.brain.sampling.max_tokens,
        ),
    )


def build_loop(config: RunConfig, parts: Parts, runner: RolloutRunner, *, tracks: Sequence[Track]) -> SyncLoop:
    """Rounds of rollouts and updates."""
    learning = config.reinforcement
    crediting = build_crediting(learning, blobs=parts.run.blobs)
    known = () if parts.stored is None else worth_learning(parts.stored, crediting)
    return SyncLoop(
        scheduler=build_scheduler(config, parts.templates, tracks, states=parts.training, known=known),
        stored=None if parts.stored is None else StoredGroups(known),
        runner=runner,
        crediting=crediting,
        greedy=learning.estimator == "remax",
        pairs_per_group=learning.pairs_per_group if learning.prefers else 0,
        learner=parts.brain.learner,
        engine=parts.brain.engine,
        clock=LoopClock(),
        events=parts.events,
        count=parts.run.count,
        groups_per_update=learning.groups_per_update,
        groups_at_most=learning.groups_at_most,
        replay=_replay(config, parts.run),
    )


def _lessons(config: RunConfig, parts: Parts, runner: RolloutRunner) -> Demonstrate:
    """What is imitated: recorded states where there are any, else what experts show."""
    if parts.record is None:
        return build_demonstrations(config, parts, runner).curriculum
    options = config.imitation
    weigh = lesson_weights(options, parts.brain.codec)

    async def curriculum() -> Curriculum:
        return Curriculum(
            RecordedLessons(parts.training, parts.brain.codec),
            batch_size=options.batch_size,
            answers=options.answers_per_turn,
            seed=config.seed,
            weigh=weigh,
        )

    return curriculum


def build_demonstrations(config: RunConfig, parts: Parts, runner: RolloutRunner) -> Demonstrations:
    """What is shown of the first training tasks."""
    shown, known = config.demonstrations.per_template, _known(config, parts)
    return Demonstrations(
        player=_player(config, parts, runner),
        templates=[t for t in parts.templates if t.id in known],
        without=[t for t in parts.templates if t.id not in known] if shown else (),
        per_template=shown,
        batch_size=config.imitation.batch_size,
        answers=config.imitation.answers_per_turn,
        seed=config.seed,
        weigh=lesson_weights(config.imitation, parts.brain.codec),
    )


async def collect_tracks(config: RunConfig, parts: Parts) -> tuple[Track, ...]:
    """The tasks that are learned over and over; unless whole rollouts are all, with a way through each, saved."""
    tasks = _learned(config, parts.templates)
    if not tasks:
        return ()
    runner = build_runner(
        config,
        environment=parts.environment,
        brain=parts.brain,
        events=parts.events,
        record=parts.run.record,
        note=parts.run.note,
    )
    player = replace(_player(config, parts, runner), keeper=parts.keeper)
    tries = Tries(player=player, size=config.tracks.own_tries, max_turns=config.rollout.max_turns, seed=config.seed)
    most = config.tracks.valuable_tries
    if most or tries.size:
        await parts.brain.engine.update(parts.brain.learner.version)
    if most:
        tasks = await replace(tries, size=most).valuable(tasks)
    if config.reinforcement.scheduler == "tasks":
        return tuple(Track(task=task) for task in tasks)
    collector = TrackCollector(player=player, own=tries if tries.size else None)
    return await collector.collect(tasks, known=_known(config, parts))


def _player(config: RunConfig, parts: Parts, runner: RolloutRunner) -> ExpertPlayer:
    options = config.demonstrations
    guide = ask_expert
    if options.url is not None:
        endpoint = ChatEndpoint(url=options.url, model=options.model, key_variable=options.key_variable)
        guide = ChatExpert(endpoint=endpoint)
    return ExpertPlayer(
        runner=runner,
        store=parts.run.trajectories,
        codec=parts.brain.codec,
        events=parts.events,
        guide=guide,
    )


def _known(config: RunConfig, parts: Parts) -> frozenset[TemplateId]:
    """Templates that somebody can show."""
    anyone = config.demonstrations.url is not None
    return frozenset(t.id for t in parts.templates if anyone or parts.environment.has_expert(t))


def _learned(config: RunConfig, templates: Sequence[Template]) -> list[Task]:
    first = config.demonstrations.per_template  # the tasks before it are known by heart
    indices = range(first, first + config.tracks.per_template)
    return [Task(template=t, split=Split.TRAIN, index=i) for i in indices for t in templates]


def _course_options(config: RunConfig, *, control: bool) -> CourseOptions:
    measured = config.evaluation
    return CourseOptions(
        imitation=Budget(updates=config.imitation.updates, minutes=config.imitation.minutes),
        reinforcement=Budget(updates=config.reinforcement.updates, minutes=config.reinforcement.minutes),
        control=control,
        measuring=Measuring(
            held_out=measured.per_template,
            train=measured.train_per_template,
            tries=measured.tries,
            curve=measured.curve_per_template,
            curve_seconds=60 * measured.curve_every_minutes,
        ),
        save_every=config.checkpoint_every_updates,
        rehearsal=config.reinforcement.rehearsal,
    )


def build_runner(
    config: RunConfig,
    *,
    environment: Environment,
    brain: "Brain",
    events: EventSink,
    record: Record = forget,
    note: Note = forget,
) -> RolloutRunner:
    """Rollouts with the limits of the recipe; every trajectory goes to `note` and every group to `record` once over."""
    options = config.rollout
    episodes = EpisodeRunner(
        sessions=environment,
        engine=brain.engine,
        codec=brain.codec,
        sampling=brain.sampling,
        limits=_limits(options),
        clock=LoopClock(),
        events=events,
    )
    groups = GroupRunner(
        episodes=episodes,
        judging=Judging(
            reward=ByStart(recorded=ExpertMatch(rules=matching_rules(config)), lived=Success()),
            format_penalty=config.reinforcement.format_penalty,
        ),
        breaker=CircuitBreaker(share=options.breaker_share, window=options.breaker_window),
        places=asyncio.Semaphore(options.concurrency or environment.capacity),
        events=events,
        retries=options.retries,
        note=note,
    )
    return RolloutRunner(groups=groups, record=record)


def build_examiner(config: RunConfig, parts: Parts, runner: RolloutRunner) -> Examiner:
    """Evaluation in the environment, or at held-out recorded states where there is none."""
    if parts.record is None or not config.offline:
        return build_evaluator(config, parts.brain, runner)
    return build_recorded_evaluator(config, parts.brain, runner, parts.record)


def build_recorded_evaluator(
    config: RunConfig, brain: "Brain", runner: RolloutRunner, record: Recording
) -> RecordedEvaluator:
    """Evaluation at recorded states."""
    return RecordedEvaluator(play=_playing(runner), states=record.of, sampling=brain.sampling, seed=config.seed)


def _playing(runner: RolloutRunner) -> Play:
    async def play(plans: Sequence[RolloutPlan], sampling: Sampling) -> Sequence[ScoredGroup]:
        episodes = replace(runner.groups.episodes, sampling=sampling)
        return await replace(runner, groups=replace(runner.groups, episodes=episodes)).round(plans)

    return play


def build_evaluator(config: RunConfig, brain: "Brain", runner: RolloutRunner) -> Evaluator:
    """Evaluation with the run's own limits."""
    return Evaluator(
        play=_playing(runner),
        sampling=brain.sampling,
        seed=config.seed,
        max_turns=config.rollout.max_turns,
        budgets=config.evaluation.budgets,
        first_train=config.demonstrations.per_template if config.tracks.per_template else 0,
    )


def _limits(options: RolloutOptions) -> Limits:
    return Limits(
        sampled_tokens=options.max_tokens,
        invalid_answers=options.invalid_limit,
        episode_seconds=options.max_seconds,
        answer_seconds=options.answer_seconds,
    )


def _replay(config: RunConfig, run: RunWriter) -> Replay:
    """Success replay, with what an earlier process of this run has stored."""
    options = config.replay
    if not options.capacity:
        return as_they_are
    replay = SuccessReplay(
        options=ReplayOptions(capacity=options.capacity, trigger=Trigger(options.trigger), first=options.first),
        seed=config.seed,
    )
    for group in run.trajectories.read():
        if group.plan.purpose.trained:
            replay.remember(group)
    return replay
