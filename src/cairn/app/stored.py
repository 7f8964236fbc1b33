"""What another run has stored, for a recipe that learns from it."""

from collections.abc import Iterable
from pathlib import Path

from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.rollout.samples import Crediting
from cairn.rollout.stored import put_together
from cairn.store.run import Run, open_run


def open_stored(config: RunConfig) -> Run | None:
    """The stored run of a recipe, None where it names none; a `ConfigError` where another kind of policy played it."""
    if config.stored.run is None:
        return None
    folder = Path(config.stored.run)
    run = open_run(folder)
    theirs, ours = configuration.load(folder / "recipe.toml").policy, config.policy
    for name, other, own in (("codec", theirs.codec, ours.codec), ("model", theirs.model, ours.model)):
        if other != own:
            raise ConfigError(
                f'stored.run: {folder} was played with policy.{name} = "{other}", whose tokens mean nothing to '
                f'policy.{name} = "{own}"'
            )
    return run


def worth_learning(groups: Iterable[ScoredGroup], crediting: Crediting) -> tuple[ScoredGroup, ...]:
    """The groups that `crediting` can learn something from, put together by task and start."""
    return tuple(group for group in put_together(groups) if crediting.idle(group) is None)
