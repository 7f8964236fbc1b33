"""Recipes as they are written: trees of TOML values, before anything is known of their keys."""

import copy
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from cairn.errors import ConfigError

Toml: TypeAlias = "str | int | float | bool | list[Toml] | dict[str, Toml]"
"""What a TOML file can hold, but for dates."""

STAGES = "stages"
SMOKE = "smoke"
"""Tables of a recipe that are no tables of a run."""


def read_tree(path: Path) -> dict[str, Toml]:
    """What a recipe's file holds; a `ConfigError` says why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def merged(tree: Mapping[str, Toml], over: Mapping[str, Toml]) -> dict[str, Toml]:
    """`tree` with the values of `over`: tables are merged key by key, everything else is replaced."""
    found = {key: copy.deepcopy(value) for key, value in tree.items()}
    for key, value in over.items():
        under = found.get(key)
        if isinstance(under, dict) and isinstance(value, dict):
            found[key] = merged(under, value)
        else:
            found[key] = copy.deepcopy(value)
    return found


def with_overrides(tree: Mapping[str, Toml], overrides: Sequence[str]) -> dict[str, Toml]:
    """`tree` with each `table.key=value`, the value in TOML."""
    found = merged(tree, {})
    for override in overrides:
        _apply(found, override)
    return found


def _apply(tree: dict[str, Toml], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"--set {override}: expected key=value, as in reinforcement.group_size=16")
    try:
        value: Toml = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string: --set policy.codec=text
    *parents, name = key.strip().split(".")
    node = tree
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override}: {parent} is not a table")
        node = child
    node[name] = value
