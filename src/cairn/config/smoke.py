"""How a recipe is cut down to a minute: everything in it is done once or twice, and nothing is learned by it."""

from typing import TypeVar, cast

from cairn.config.recipe import RunConfig
from cairn.config.table import Table
from cairn.config.tables import ReinforcementOptions
from cairn.config.trees import Toml

AnyTable = TypeVar("AnyTable", bound=Table)

_TEMPLATES = 2
_UPDATES = 2
_GROUPS = 2
_MEMBERS = 4
_BATCH = 8
_DEMONSTRATED = 2  # tasks
_RECORDED = 4  # tasks played for a set, of which one is held out
_TURNS = 4


def cut_down(config: RunConfig) -> dict[str, Toml]:
    """The tables of a run with the same parts, and hardly any work. What is not done at all stays undone."""
    tracks, adaptive = config.tracks, config.adaptive
    budgets = [budget for budget in config.evaluation.budgets if budget <= _TURNS]
    small = _with(
        config,
        environment=_with(config.environment, templates=config.environment.templates[:_TEMPLATES], browsers=1),
        demonstrations=_with(
            config.demonstrations, per_template=min(config.demonstrations.per_template, _DEMONSTRATED)
        ),
        imitation=_with(
            config.imitation,
            minutes=None,
            updates=_updates(config.imitation.updates, config.imitation.minutes),
            batch_size=min(config.imitation.batch_size, _BATCH),
        ),
        reinforcement=_learning(config.reinforcement),
        recorded=_with(
            config.recorded,
            per_template=min(config.recorded.per_template, _RECORDED),
            recovery=_with(config.recorded.recovery, answers=min(config.recorded.recovery.answers, _MEMBERS)),
        ),
        rollout=_with(config.rollout, max_turns=min(config.rollout.max_turns or _TURNS, _TURNS)),
        tracks=_with(
            tracks,
            per_template=min(tracks.per_template, 1),
            own_tries=min(tracks.own_tries, _MEMBERS),
            valuable_tries=min(tracks.valuable_tries, _MEMBERS),
        ),
        adaptive=_with(adaptive, answers=min(adaptive.answers, _MEMBERS), suffixes=min(adaptive.suffixes, _MEMBERS)),
        evaluation=_with(
            config.evaluation, per_template=2, train_per_template=0, tries=1, curve_per_template=0, budgets=budgets
        ),
    )
    return cast("dict[str, Toml]", small.model_dump(exclude_none=True))


def _learning(options: ReinforcementOptions) -> ReinforcementOptions:
    most = options.groups_at_most
    return _with(
        options,
        minutes=None,
        updates=_updates(options.updates, options.minutes),
        groups_per_update=min(options.groups_per_update, _GROUPS),
        groups_at_most=None if most is None else min(most, 2 * _GROUPS),
        group_size=min(options.group_size, _MEMBERS),
        rehearsal=min(options.rehearsal, 1),
    )


def _with(table: AnyTable, **values: object) -> AnyTable:
    return table.model_copy(update=values)


def _updates(updates: int | None, minutes: float | None) -> int:
    if updates is None:
        return _UPDATES if minutes else 0
    return min(updates, _UPDATES)
