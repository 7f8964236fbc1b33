"""Runs from end to end: opened, run, closed whatever happens."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.app.environments import build_environment, choose_templates, require_browser
from cairn.app.ranks import Company
from cairn.app.recorded import Recording, chosen_templates, open_set, require_states, with_own_set
from cairn.app.rewards import check_formats
from cairn.app.snapshots import SnapshotCounts, put_to_rest, with_snapshots
from cairn.app.stored import open_stored
from cairn.app.training import (
    Parts,
    build_course,
    build_evaluator,
    build_recorded_evaluator,
    build_runner,
    collect_tracks,
    run_composition,
)
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.ledger import Quantity
from cairn.data.task import Purpose, Split, Template
from cairn.envs.recorded import RecordedEnvironment
from cairn.errors import ConfigError
from cairn.evaluate.report import EvaluationReport
from cairn.evaluate.run import Examiner
from cairn.loop import progress as progress_file
from cairn.loop.course import CHECKPOINTS, PROGRESS
from cairn.loop.events import notice
from cairn.loop.progress import Progress
from cairn.models.loading import configure_torch, require_model, require_peft
from cairn.models.vision.families import require_kind
from cairn.ports import BlobStore, Environment, EventSink
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.store.blobs import BorrowingBlobs
from cairn.store.events import FanOut, TensorBoardSink
from cairn.store.run import RunWriter, open_run
from cairn.testing.memory import MemoryBlobs
from cairn.train.checkpoint import existing

if TYPE_CHECKING:
    from cairn.app.brain import Brain
    from cairn.train.meeting import Meeting


REFUSED = "refused"
"""The folder in a run's directory for batches that its learner refused."""

SNAPSHOTS = "snapshots"
"""The folder in a run's directory where its saved states have their home."""
_POLICY_FILES = ("config.json", "adapter_config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """One run to train, or to go on with."""

    config: RunConfig
    folder: Path
    resume: bool
    control: bool
    tensorboard: bool
    sinks: Sequence[EventSink] = ()
    company: Company = field(default_factory=Company)  # the other processes of its learner


async def train(request: TrainRequest) -> Progress:
    """Train to the end. Cancelled, it saves and can be resumed; whatever it opened is closed."""
    async with opened(request) as parts:
        config = with_own_set(request.config, request.folder)
        run_composition(config, parts)  # whose mistakes are told before anything is played
        tracks = await collect_tracks(config, parts)
        course = build_course(config, parts, control=request.control, tracks=tracks)
        if request.resume:
            course.resume()
        progress = await course.run()
        if isinstance(parts.environment, SnapshotEnvironment):
            await put_to_rest(parts.environment)  # of a run that is stopped instead they wait in memory for the next
        return progress


@asynccontextmanager
async def opened(request: TrainRequest) -> AsyncGenerator[Parts]:
    """What a run is made of, closed in the end whatever happens."""
    config = with_own_set(request.config, request.folder)
    check_ready(config)  # before there is a run that cannot go on
    with request.company.leading(config) as meeting:
        async with _opened(request, config, meeting) as parts:
            yield parts


@asynccontextmanager
async def _opened(request: TrainRequest, config: RunConfig, meeting: "Meeting | None") -> AsyncGenerator[Parts]:
    run = _writer(request)
    board = TensorBoardSink(run.path / "tensorboard") if request.tensorboard else None
    try:
        states = open_set(config)
        blobs: BlobStore = run.blobs if states is None else BorrowingBlobs(run.blobs, lender=states.blobs)
        if (stored := open_stored(config)) is not None:
            blobs = BorrowingBlobs(blobs, lender=stored.blobs)
        brain = open_brain(config, blobs=blobs, refused=run.path / REFUSED, meeting=meeting)
        events = FanOut([run.events, SnapshotCounts(run.count), *request.sinks, *([board] if board else [])])
        try:
            record = None if states is None else Recording(states, codec=brain.codec, config=config)
            learnable = None if record is None else record.learnable()
            if learnable is not None:
                events.emit(notice(str(learnable)))
            async with _environment(config, run=run, events=events, record=record) as environment:
                yield Parts(
                    environment=environment,
                    templates=_templates(config, environment),
                    brain=brain,
                    events=events,
                    run=run,
                    keeper=environment if isinstance(environment, SnapshotEnvironment) else None,
                    record=record,
                    training=learnable.states if learnable is not None else (),
                    stored=stored,
                )
        finally:
            await brain.engine.close()
    finally:
        if board is not None:
            board.close()
        run.close()


@asynccontextmanager
async def _environment(
    config: RunConfig, *, run: RunWriter, events: EventSink, record: Recording | None
) -> AsyncGenerator[Environment]:
    if record is not None and config.offline:
        yield RecordedEnvironment(templates=record.templates)
        return
    environment = build_environment(config.environment, blobs=run.blobs)
    if config.snapshots.store != "none":
        home = Home(folder=run.path / SNAPSHOTS)
        async with with_snapshots(
            environment, config.snapshots, home=home, blobs=run.blobs, events=events
        ) as environment_with:
            yield environment_with
        return
    try:
        yield environment
    finally:
        await environment.close()


def _templates(config: RunConfig, environment: Environment) -> tuple[Template, ...]:
    """Those of the recipe; a run without an environment has chosen its own."""
    return choose_templates(environment, () if config.offline else config.environment.templates)


def open_brain(
    config: RunConfig,
    *,
    blobs: BlobStore,
    saved: Path | None = None,
    refused: Path | None = None,
    meeting: "Meeting | None" = None,
) -> "Brain":
    """The policy of a recipe, newly made or as saved in a directory."""
    configure_torch(threads=config.policy.threads)  # before torch comes in with the brain
    from cairn.app.brain import build_brain

    return build_brain(config, blobs=blobs, saved=saved, refused=refused, meeting=meeting)


def check_ready(config: RunConfig) -> None:
    """Raise what is wrong with a recipe, or with this machine for it, as far as that is quick to see."""
    states = open_set(config)
    if states is not None:
        templates = chosen_templates(states, config.recorded.templates)
        require_states(states, Split.TRAIN, templates)
        if config.offline:
            require_states(states, Split.HELD_OUT, templates)
    if not config.offline or config.recorded.collects:
        blobs = MemoryBlobs()
        choose_templates(build_environment(config.environment, blobs=blobs), config.environment.templates)
        require_browser(config.environment)
    check_formats(config.reward, config.policy)
    open_stored(config)
    options = config.policy
    if options.model == "path" and options.path is not None:
        require_model(Path(options.path))
        require_kind(Path(options.path), codec=options.codec, sees=options.sees)
    if options.start is not None and not any((Path(options.start) / name).is_file() for name in _POLICY_FILES):
        raise ConfigError(f"policy.start: there is no saved policy in {options.start}")
    if options.lora_rank:
        require_peft()


def _writer(request: TrainRequest) -> RunWriter:
    if request.resume:
        return RunWriter.resume(request.folder)
    return RunWriter.create(request.folder, recipe=configuration.to_toml(request.config), seed=request.config.seed)


def config_of(folder: Path) -> RunConfig:
    """The resolved recipe of a run's directory."""
    open_run(folder)
    return with_own_set(configuration.load(folder / "recipe.toml"), folder)


def saved_policy(folder: Path, name: str) -> Path:
    """The directory of a run's checkpoint; `latest` is the one that the run would go on from.

    Where there is none of that name, a `ConfigError` lists those that there are.
    """
    found = progress_file.read(folder / PROGRESS).checkpoint if name == "latest" else name
    home = folder / CHECKPOINTS
    try:
        return existing(home / (found or name))
    except ConfigError as error:
        there = sorted({path.stem for path in home.glob("*") if path.is_dir() and path.suffix in {"", ".old"}})
        fix = f"the run has: {', '.join(there)}" if there else "nothing is saved in this run yet"
        raise ConfigError(f"{error}; {fix}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """One saved policy to evaluate with a run's own recipe."""

    config: RunConfig
    saved: Path  # a directory that `from_pretrained` reads
    split: Split
    per_template: int
    tries: int
    sinks: Sequence[EventSink] = ()


async def evaluate(request: EvaluateRequest) -> tuple[EvaluationReport, ...]:
    """Sampled and greedy, on the tasks that the run itself was evaluated on."""
    if not request.saved.is_dir():
        raise ConfigError(f"no saved policy at {request.saved}")
    if request.config.offline:
        return await _evaluate_recorded(request)
    require_browser(request.config.environment)
    blobs = MemoryBlobs()
    environment = build_environment(request.config.environment, blobs=blobs)
    templates = choose_templates(environment, request.config.environment.templates)
    brain = open_brain(request.config, blobs=blobs, saved=request.saved)
    try:
        runner = build_runner(request.config, environment=environment, brain=brain, events=FanOut(list(request.sinks)))
        return await _examined(build_evaluator(request.config, brain, runner), templates, request)
    finally:
        await environment.close()
        await brain.engine.close()


async def _evaluate_recorded(request: EvaluateRequest) -> tuple[EvaluationReport, ...]:
    states = open_set(request.config)
    if states is None:
        raise ConfigError("recorded.path is unset: there are no states to evaluate on")
    if request.split is Split.HELD_OUT:
        require_states(states, Split.HELD_OUT, chosen_templates(states, request.config.recorded.templates))
    brain = open_brain(request.config, blobs=states.blobs, saved=request.saved)
    try:
        record = Recording(states, codec=brain.codec, config=request.config)
        environment = RecordedEnvironment(templates=record.templates)
        runner = build_runner(request.config, environment=environment, brain=brain, events=FanOut(list(request.sinks)))
        evaluator = build_recorded_evaluator(request.config, brain, runner, record)
        return await _examined(evaluator, record.templates, request)
    finally:
        await brain.engine.close()


async def _examined(
    examiner: Examiner, templates: Sequence[Template], request: EvaluateRequest
) -> tuple[EvaluationReport, ...]:
    return tuple(
        [
            await examiner.run(
                templates,
                split=request.split,
                per_template=request.per_template,
                tries=request.tries,
                greedy=greedy,
            )
            for greedy in (False, True)
        ]
    )


async def collect_demonstrations(config: RunConfig, folder: Path) -> dict[str, int]:
    """Let the experts play, into a new run that `train` can go on with; what they showed."""
    request = TrainRequest(config=config, folder=folder, resume=False, control=False, tensorboard=False)
    async with opened(request) as parts:
        tracks = await collect_tracks(config, parts)
        await build_course(config, parts, control=False, tracks=tracks).demonstrate()
    ledger = open_run(folder).ledger
    counted = (Quantity.JUDGED, Quantity.SUCCESS, Quantity.ENVIRONMENT_STEPS, Quantity.INFRASTRUCTURE_ERROR)
    return {q.value: int(ledger.total(q, purpose=Purpose.DEMONSTRATE)) for q in counted}
