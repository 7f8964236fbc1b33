"""Recipes by name or by path, and their resolved configuration."""

import difflib
from importlib.resources import files
from pathlib import Path

from cairn.errors import ConfigError


def shipped() -> tuple[str, ...]:
    """The names of the recipes in the package."""
    return tuple(sorted(p.stem for p in _folder().glob("*.toml")))


def find(recipe: str) -> Path:
    """The file of a recipe that is shipped or a path."""
    path = Path(recipe)
    if path.suffix == ".toml":
        return path
    if recipe in shipped():
        return _folder() / f"{recipe}.toml"
    near = difflib.get_close_matches(recipe, shipped(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(shipped())}."
    raise ConfigError(f"no recipe {recipe!r}; {hint} A path ends in .toml.")


def _folder() -> Path:
    return Path(str(files("cairn"))) / "recipes"
