"""Reading a scheduler's saved state: JSON values, checked one by one."""

from collections.abc import Mapping
from typing import cast

from cairn.errors import ConfigError


def whole(state: Mapping[str, object], key: str) -> int:
    """A whole number of at least 0; a `ConfigError` names the key where there is none."""
    value = state.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"scheduler state: {key} must be a whole number of at least 0, got {value!r}")
    return value


def number(state: Mapping[str, object], key: str) -> float:
    """A number; a `ConfigError` names the key where there is none."""
    return as_number(state.get(key), key)


def as_number(value: object, key: str) -> float:
    """`value`, which stands at `key`, as a number; a `ConfigError` names the key where it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"scheduler state: {key} must be a number, got {value!r}")
    return float(value)


def table(state: Mapping[str, object], key: str) -> dict[str, object]:
    """A JSON object; a `ConfigError` names the key where there is none."""
    value = state.get(key)
    if not isinstance(value, dict):
        raise ConfigError(f"scheduler state: {key} must be an object, got {value!r}")
    return cast("dict[str, object]", value)


def array(state: Mapping[str, object], key: str) -> list[object]:
    """A JSON array; a `ConfigError` names the key where there is none."""
    value = state.get(key)
    if not isinstance(value, list):
        raise ConfigError(f"scheduler state: {key} must be an array, got {value!r}")
    return cast("list[object]", value)


def text(state: Mapping[str, object], key: str) -> str:
    """A string; a `ConfigError` names the key where there is none."""
    value = state.get(key)
    if not isinstance(value, str):
        raise ConfigError(f"scheduler state: {key} must be a string, got {value!r}")
    return value
