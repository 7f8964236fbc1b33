"""A recipe's runs in their places: alone in the directory, or one folder for each stage, each going on from the last.

::

    1-NAME.toml    each stage's recipe, complete
    1-NAME/        its run
    recorded/      the set that experts played, where the recipe asks for one
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.app.datasets import collect_recorded, dividing
from cairn.app.derived import check_derivable, derive
from cairn.app.recorded import RECORDED
from cairn.app.run import TrainRequest, check_ready, config_of, saved_policy, train
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.config.stages import Stage
from cairn.errors import ConfigError
from cairn.loop.progress import Phase, Progress
from cairn.store.recorded import holds_set

_RECIPE = re.compile(r"(?P<number>\d+)-(?P<name>[a-z0-9][a-z0-9-]*)\.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one run of a recipe lies."""

    name: str  # of its stage; empty where it is the only run
    folder: Path
    whole: Path  # the directory of all stages; that of the run where it is the only one
    config: RunConfig
    after: Path | None = None  # the stage whose last policy it goes on from

    @property
    def begun(self) -> bool:
        """Whether there is anything to resume."""
        return (self.folder / "run.json").is_file()


def lay_out(stages: Sequence[Stage], folder: Path) -> tuple[Place, ...]:
    """Write down where the stages go, in a directory that holds no run; each is checked before the first begins."""
    for number, stage in enumerate(stages):
        check_ready(stage.config)
        check_derivable(stage.config, first=number == 0)
    if not stages[0].name:
        return (Place(name="", folder=folder, whole=folder, config=stages[0].config),)
    if (folder / "run.json").exists() or _recipes(folder):
        raise ConfigError(f"{folder} holds a run already: resume it, or choose another directory")
    folder.mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(stages, start=1):
        path = folder / f"{number}-{stage.name}.toml"
        path.write_text(configuration.to_toml(stage.config), encoding="utf-8")
    return found(folder)


def found(folder: Path) -> tuple[Place, ...]:
    """What is there to go on with."""
    recipes = _recipes(folder)
    if not recipes:
        return (Place(name="", folder=folder, whole=folder, config=config_of(folder)),)
    places: list[Place] = []
    for path, name in recipes:
        after = places[-1].folder if places else None
        config = configuration.load(path)
        places.append(Place(name=name, folder=path.with_suffix(""), whole=folder, config=config, after=after))
    return tuple(places)


def last_run(folder: Path) -> Path:
    """The run in a directory: of several stages, the last that has begun."""
    places = found(folder) if _recipes(folder) else ()
    begun = [place.folder for place in places if place.begun]
    return begun[-1] if begun else folder


def _recipes(folder: Path) -> list[tuple[Path, str]]:
    """The stages' recipes with their names, in their order."""
    named = [(match, path) for path in folder.glob("*.toml") if (match := _RECIPE.fullmatch(path.name))]
    return [(path, match["name"]) for match, path in sorted(named, key=lambda one: int(one[0]["number"]))]


async def train_in(place: Place, request: TrainRequest) -> Progress:
    """Train one stage, from where the one before it has ended; `request` says how, and what was made for it is kept."""
    config = place.config
    if place.after is not None:
        start = saved_policy(place.after, Phase.REINFORCE)
        config = config.model_copy(update={"policy": config.policy.model_copy(update={"start": str(start)})})
    sets = place.whole / RECORDED
    if config.recorded.collects and not holds_set(sets):
        await collect_recorded(_played(config), sets, division=dividing(config.recorded.held_out, config.seed))
    base = sets if config.recorded.path is None else Path(config.recorded.path)
    await derive(config, base=base, folder=place.folder, sinks=request.sinks)
    return await train(replace(request, config=config, folder=place.folder, resume=request.resume and place.begun))


def _played(config: RunConfig) -> RunConfig:
    """What experts play for the set: the recipe's environment, in the words of its policy, and nothing else of it."""
    fresh = RunConfig()
    shown = config.demonstrations.model_copy(update={"per_template": config.recorded.per_template})
    return fresh.model_copy(
        update={
            "seed": config.seed,
            "environment": config.environment,
            "policy": config.policy,
            "rollout": config.rollout,
            "demonstrations": shown,
        }
    )
