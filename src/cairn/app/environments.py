"""Which environment a recipe names, and which of its templates."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from cairn.config import EnvironmentOptions
from cairn.data.task import Template
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.errors import ConfigError
from cairn.ports import BlobStore, Environment
from cairn.testing.scripted import ScriptedEnvironment

NAMES = ("miniwob", "scripted")


def build_environment(options: EnvironmentOptions, *, blobs: BlobStore) -> Environment:
    """The environment; screenshots go to `blobs`. Nothing is started before the first session is opened."""
    match options.name:
        case "miniwob":
            return MiniwobEnvironment(
                blobs=blobs,
                options=MiniwobOptions(
                    limits=PoolLimits(browsers=options.browsers, pages_per_browser=options.pages_per_browser),
                    accessibility=options.accessibility,
                    executable=Path(options.browser) if options.browser else None,
                ),
            )
        case "scripted":
            return ScriptedEnvironment(blobs=blobs)


def choose_templates(environment: Environment, wanted: Sequence[str]) -> tuple[Template, ...]:
    """The named templates in that order; all of them where none is named."""
    known = {t.id.removeprefix(f"{environment.name}/"): t for t in environment.templates}
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"`cairn env tasks {environment.name}` lists them."
            raise ConfigError(f"{environment.name} has no task {name!r}; {hint}")
    return tuple(known[name] for name in wanted) if wanted else tuple(known.values())
