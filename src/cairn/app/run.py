"""Runs from end to end: opened, run, closed whatever happens."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.app.environments import build_environment, choose_templates, require_browser
from cairn.app.snapshots import SnapshotCounts, with_snapshots
from cairn.app.training import Parts, build_course, build_evaluator, build_runner, collect_tracks
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.ledger import Quantity
from cairn.data.task import Purpose, Split
from cairn.errors import ConfigError
from cairn.evaluate.report import EvaluationReport
from cairn.loop import progress as progress_file
from cairn.loop.course import CHECKPOINTS, PROGRESS
from cairn.loop.progress import Progress
from cairn.models.loading import configure_torch, require_model
from cairn.models.vision.families import require_kind
from cairn.ports import BlobStore, Environment, EventSink
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.store.events import FanOut, TensorBoardSink
from cairn.store.run import RunWriter, open_run
from cairn.testing.memory import MemoryBlobs

if TYPE_CHECKING:
    from cairn.app.brain import Brain


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """One run to train, or to go on with."""

    config: RunConfig
    folder: Path
    resume: bool
    control: bool
    tensorboard: bool
    sinks: Sequence[EventSink] = ()


async def train(request: TrainRequest) -> Progress:
    """Train to the end. Cancelled, it saves and can be resumed; whatever it opened is closed."""
    async with opened(request) as parts:
        tracks = await collect_tracks(request.config, parts)
        course = build_course(request.config, parts, control=request.control, tracks=tracks)
        if request.resume:
            course.resume()
        return await course.run()


@asynccontextmanager
async def opened(request: TrainRequest) -> AsyncGenerator[Parts]:
    """What a run is made of, closed in the end whatever happens."""
    check_ready(request.config)  # before there is a run that cannot go on
    run = _writer(request)
    board = TensorBoardSink(run.path / "tensorboard") if request.tensorboard else None
    try:
        brain = _brain(request.config, blobs=run.blobs)
        events = FanOut([run.events, SnapshotCounts(run.count), *request.sinks, *([board] if board else [])])
        try:
            async with _environment(request.config, run=run, events=events) as environment:
                templates = choose_templates(environment, request.config.environment.templates)
                keeper = environment if isinstance(environment, SnapshotEnvironment) else None
                yield Parts(
                    environment=environment, templates=templates, brain=brain, events=events, run=run, keeper=keeper
                )
        finally:
            await brain.engine.close()
    finally:
        if board is not None:
            board.close()
        run.close()


@asynccontextmanager
async def _environment(config: RunConfig, *, run: RunWriter, events: EventSink) -> AsyncGenerator[Environment]:
    environment = build_environment(config.environment, blobs=run.blobs)
    if config.snapshots.store != "none":
        home = Home(folder=run.path / "snapshots")
        async with with_snapshots(
            environment, config.snapshots, home=home, blobs=run.blobs, events=events
        ) as environment_with:
            yield environment_with
        return
    try:
        yield environment
    finally:
        await environment.close()


def _brain(config: RunConfig, *, blobs: BlobStore, saved: Path | None = None) -> "Brain":
    configure_torch(threads=config.policy.threads)  # before torch comes in with the brain
    from cairn.app.brain import build_brain

    return build_brain(config, blobs=blobs, saved=saved)


def check_ready(config: RunConfig) -> None:
    """Raise what is wrong with a recipe, or with this machine for it, as far as that is quick to see."""
    blobs = MemoryBlobs()
    choose_templates(build_environment(config.environment, blobs=blobs), config.environment.templates)
    require_browser(config.environment)
    options = config.policy
    if options.model == "path" and options.path is not None:
        require_model(Path(options.path))
        require_kind(Path(options.path), codec=options.codec, sees=options.sees)
    if options.start is not None and not (Path(options.start) / "config.json").is_file():
        raise ConfigError(f"policy.start: there is no saved policy in {options.start}")


def _writer(request: TrainRequest) -> RunWriter:
    if request.resume:
        return RunWriter.resume(request.folder)
    return RunWriter.create(request.folder, recipe=configuration.to_toml(request.config), seed=request.config.seed)


def config_of(folder: Path) -> RunConfig:
    """The resolved recipe of a run's directory."""
    open_run(folder)
    return configuration.load(folder / "recipe.toml")


def saved_policy(folder: Path, name: str) -> Path:
    """The directory of a run's checkpoint; `latest` is the one that the run would go on from."""
    found = progress_file.read(folder / PROGRESS).checkpoint if name == "latest" else name
    return folder / CHECKPOINTS / (found or name)


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
    require_browser(request.config.environment)
    blobs = MemoryBlobs()
    environment = build_environment(request.config.environment, blobs=blobs)
    templates = choose_templates(environment, request.config.environment.templates)
    brain = _brain(request.config, blobs=blobs, saved=request.saved)
    events = FanOut(list(request.sinks))
    try:
        runner = build_runner(request.config, environment=environment, brain=brain, events=events)
        evaluator = build_evaluator(request.config, brain, runner)
        return tuple(
            [
                await evaluator.run(
                    templates,
                    split=request.split,
                    per_template=request.per_template,
                    tries=request.tries,
                    greedy=greedy,
                )
                for greedy in (False, True)
            ]
        )
    finally:
        await environment.close()
        await brain.engine.close()


async def collect_demonstrations(config: RunConfig, folder: Path) -> dict[str, int]:
    """Let the experts play, into a new run that `train` can go on with; what they showed."""
    request = TrainRequest(config=config, folder=folder, resume=False, control=False, tensorboard=False)
    async with opened(request) as parts:
        tracks = await collect_tracks(config, parts)
        await build_course(config, parts, control=False, tracks=tracks).demonstrate()
    ledger = open_run(folder).ledger
    counted = (Quantity.JUDGED, Quantity.SUCCESS, Quantity.ENVIRONMENT_STEPS, Quantity.INFRASTRUCTURE_ERROR)
    return {q.value: int(ledger.total(q, purpose=Purpose.DEMONSTRATE)) for q in counted}
