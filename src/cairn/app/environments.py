"""Which environment a recipe names, and which of its templates."""

import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.pixel import PixelCodec
from cairn.codecs.vision import VisionCodec
from cairn.config.tables import EnvironmentOptions
from cairn.data.coordinates import CoordinateSpace
from cairn.data.observation import Box
from cairn.data.pixel_vocabulary import Crop, PixelVocabulary
from cairn.data.task import Template
from cairn.envs.chromium.contained import FULL, SHELL
from cairn.envs.chromium.discovery import find_browser
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.chain import ChainEnvironment
from cairn.envs.miniwob.contained import ChainContainers, MiniwobContainers
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.envs.states.contained import StatesContainers
from cairn.envs.states.environment import StatesEnvironment
from cairn.errors import ConfigError
from cairn.ports import BlobStore, Environment
from cairn.snapshot_ports import Contained
from cairn.testing.calibration_check import NamedCodec
from cairn.testing.environment_check import check_environment
from cairn.testing.environment_report import EnvironmentReport, Result
from cairn.testing.memory import MemoryBlobs
from cairn.testing.scripted import ScriptedEnvironment
from cairn.testing.spelled import SpellingProcessor
from cairn.testing.template_checks import CheckOptions

NAMES = ("miniwob", "miniwob-chain", "states", "scripted")


def build_environment(options: EnvironmentOptions, *, blobs: BlobStore) -> Environment:
    """The environment; screenshots go to `blobs`. Nothing is started before the first session is opened."""
    match options.name:
        case "miniwob":
            return _miniwob(options, blobs=blobs)
        case "miniwob-chain":
            return ChainEnvironment(_miniwob(options, blobs=blobs))
        case "states":
            return StatesEnvironment(
                blobs=blobs,
                limits=PoolLimits(browsers=options.browsers, pages_per_browser=options.pages_per_browser),
                executable=_executable(options),
            )
        case "scripted":
            return ScriptedEnvironment(blobs=blobs)


def _miniwob(options: EnvironmentOptions, *, blobs: BlobStore) -> MiniwobEnvironment:
    return MiniwobEnvironment(
        blobs=blobs,
        options=MiniwobOptions(
            limits=PoolLimits(browsers=options.browsers, pages_per_browser=options.pages_per_browser),
            accessibility=options.accessibility,
            executable=_executable(options),
        ),
    )


def build_containers(name: str, *, blobs: BlobStore, full: bool = False) -> Contained | None:
    """How the environment works in containers, with the headless shell or `full` Chromium; None where it cannot."""
    binary = FULL if full else SHELL
    match name:
        case "miniwob":
            return MiniwobContainers(blobs=blobs, binary=binary)
        case "miniwob-chain":
            return ChainContainers(blobs=blobs, binary=binary)
        case "states":
            return StatesContainers(blobs=blobs, binary=binary)
        case _:
            return None


def require_browser(options: EnvironmentOptions) -> None:
    """Raise a `SetupError`, with the fix, where the environment needs a browser and there is none."""
    if options.name != "scripted":
        find_browser(executable=_executable(options))


def _executable(options: EnvironmentOptions) -> Path | None:
    """As the recipe says, else as the variable CAIRN_BROWSER does, else None: the best one found."""
    path = options.browser or os.environ.get("CAIRN_BROWSER")
    return Path(path) if path else None


def choose_templates(environment: Environment, wanted: Sequence[str]) -> tuple[Template, ...]:
    """The named templates in that order; all of them where none is named."""
    known = {t.id.removeprefix(f"{environment.name}/"): t for t in environment.templates}
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"`cairn env tasks {environment.name}` lists them."
            raise ConfigError(f"{environment.name} has no task {name!r}; {hint}")
    return tuple(known[name] for name in wanted) if wanted else tuple(known.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An environment at a glance."""

    templates: int
    experts: int
    summary: str


_SUMMARIES = {
    "miniwob": "MiniWoB++: small web pages with a goal, in headless Chromium",
    "miniwob-chain": "three or four MiniWoB++ tasks in one episode, with one success in the end",
    "states": "one page for each property of a live page: what does a saved state keep?",
    "scripted": "pages that are plain Python, for tests and for trying the machinery",
}


def environment_named(name: str) -> Environment:
    """The environment with its default options, and a blob store in memory."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(NAMES)}."
        raise ConfigError(f"no environment {name!r}; {hint}")
    return build_environment(EnvironmentOptions.model_validate({"name": name}), blobs=MemoryBlobs())


def owner_of(template: Template) -> str:
    """The name of the environment that has the template."""
    for name in NAMES:
        if any(known.id == template.id for known in environment_named(name).templates):
            return name
    raise ConfigError(f"no environment of this version has a task {template.id}")


def describe(name: str) -> Description:
    """What `cairn env list` says of it."""
    environment = environment_named(name)
    return Description(
        templates=len(environment.templates),
        experts=sum(environment.has_expert(t) for t in environment.templates),
        summary=_SUMMARIES[name],
    )


def short_name(template: Template, environment: Environment) -> str:
    """A template's name without the environment's."""
    return template.id.removeprefix(f"{environment.name}/")


async def check_named(
    name: str, tasks: Sequence[str], *, seeds: int, progress: Callable[[str], None]
) -> EnvironmentReport:
    """Run the conformance kit, with every codec that turns points into tokens and back."""
    blobs = MemoryBlobs()
    environment_named(name)
    environment = build_environment(EnvironmentOptions.model_validate({"name": name}), blobs=blobs)
    options = CheckOptions(
        templates=choose_templates(environment, tasks) if tasks else None, indices=tuple(range(seeds))
    )

    def told(result: Result) -> None:
        progress(f"{result.check} {result.template or ''}")

    codecs = (_PIXEL_CODEC, *_dialects(blobs))
    return await check_environment(environment, options=options, blobs=blobs, codecs=codecs, progress=told)


_CROP = Crop()  # the pixel policy looks below the instruction
_PIXEL_CODEC = NamedCodec(
    name="pixel",
    codec=PixelCodec(vocabulary=PixelVocabulary(), crop=_CROP),
    reach=Box(
        left=_CROP.left / _CROP.screen_width,
        top=_CROP.top / _CROP.screen_height,
        width=_CROP.width / _CROP.screen_width,
        height=_CROP.height / _CROP.screen_height,
    ),
)


def _dialects(blobs: BlobStore) -> Iterator[NamedCodec]:
    """Every dialect of vision-language models; together they go through all three coordinate spaces."""
    for dialect, space in zip(Dialect, cycle((*CoordinateSpace, CoordinateSpace.PIXELS)), strict=False):
        processor = SpellingProcessor(blobs=blobs, space=space)
        yield NamedCodec(name=f"{dialect} in {space}", codec=VisionCodec(processor=processor, dialect=dialect))
