"""The runs that a recipe comes to: one, or one for each of its `[[stages]]`; cut down where that is asked for."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cairn.config.recipe import RunConfig, parse
from cairn.config.smoke import cut_down
from cairn.config.trees import SMOKE, STAGES, Toml, merged, read_tree, with_overrides
from cairn.errors import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One run of a recipe."""

    name: str  # empty where the recipe has no stages
    config: RunConfig


def load_stages(path: Path, overrides: Sequence[str] = (), *, smoke: bool = False) -> tuple[Stage, ...]:
    """Read a recipe.

    Each stage has the recipe's own tables with what it says itself over them. Those after the first imitate nothing
    unless they have a table `imitation`. An override, `table.key=value`, is for every stage, and
    `stages.NAME.table.key=value` for one. With `smoke` each run is cut down to about a minute, in which nothing is
    learned; the recipe's `[smoke]` says what that needs beside.
    """
    tree = read_tree(path)
    stages = _stages(tree, path)
    names = [name for name, _ in stages]
    for override in overrides:
        _check_override(override, names)
    shared = {key: value for key, value in tree.items() if key not in {STAGES, SMOKE}}
    small = tree.get(SMOKE, {}) if smoke else {}
    if not isinstance(small, dict):
        raise ConfigError(f"{path}: smoke is a table, [smoke.reinforcement] and the like")
    return tuple(
        Stage(
            name=name,
            config=_config(
                merged(shared, own), small if smoke else None, _of_stage(overrides, name), origin=_origin(path, name)
            ),
        )
        for name, own in stages
    )


def _config(
    tree: dict[str, Toml], small: Mapping[str, Toml] | None, overrides: Sequence[str], *, origin: str
) -> RunConfig:
    if small is not None:
        tree = merged(cut_down(parse(tree, origin=origin)), small)
    origin = " ".join((origin, *(f"--set {override}" for override in overrides)))
    return parse(with_overrides(tree, overrides), origin=origin)


def _stages(tree: Mapping[str, Toml], path: Path) -> list[tuple[str, dict[str, Toml]]]:
    """The name of each stage, and what it says; of a recipe without any, one that says nothing."""
    found = tree.get(STAGES)
    if found is None:
        return [("", {})]
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        raise ConfigError(f"{path}: stages are tables, each begun by [[stages]] and a name")
    stages: list[tuple[str, dict[str, Toml]]] = []
    for number, one in enumerate(cast("list[dict[str, Toml]]", found)):
        name = one.get("name", "")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"{path}: stage {number + 1} needs a name of small letters, digits and hyphens")
        own = {key: value for key, value in one.items() if key != "name"}
        _check_start(own, name, path)
        stages.append((name, own if number == 0 else merged({"imitation": _NOTHING}, own)))
    twice = [name for name, count in Counter(name for name, _ in stages).items() if count > 1]
    if twice:
        raise ConfigError(f"{path}: two stages are called {twice[0]!r}")
    return stages


_NOTHING: dict[str, Toml] = {"updates": 0}


def _check_start(own: Mapping[str, Toml], name: str, path: Path) -> None:
    policy = own.get("policy", {})
    if isinstance(policy, dict) and "start" in policy:
        raise ConfigError(f"{path}: stage {name!r} has policy.start, and a stage starts from the one before it")


def _of_stage(overrides: Sequence[str], name: str) -> list[str]:
    own = f"{STAGES}.{name}."
    everywhere = [one for one in overrides if not one.startswith(f"{STAGES}.")]
    return [*everywhere, *(one.removeprefix(own) for one in overrides if one.startswith(own))]


def _check_override(override: str, names: Sequence[str]) -> None:
    key = override.partition("=")[0].split(".")
    if key[0] == SMOKE:
        raise ConfigError(f"--set {override}: name the key itself, and use --smoke")
    if key[0] == STAGES and (len(key) < 3 or key[1] not in names):
        known = ", ".join(name for name in names if name) or "none"
        raise ConfigError(f"--set {override}: expected stages.NAME.table.key; the recipe's stages: {known}")


def _origin(path: Path, name: str) -> str:
    return f"{path}, stage {name}" if name else str(path)
