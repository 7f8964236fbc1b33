"""Directories that are either complete or absent, whatever is killed in between."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from cairn.errors import ConfigError, SetupError

_POINTER = "latest"


def write_directory(path: Path, fill: Callable[[Path], None]) -> None:
    """Make `path` hold exactly what `fill` writes.

    `fill` writes beside it, everything is forced to disk, then renamed. A directory that stood at `path` is kept as
    `<name>.old` until the new one is there, and `existing` finds it if the process dies in between. A full disk, or one
    that may not be written, is a `SetupError`.
    """
    try:
        _write(path, fill)
    except (OSError, SafetensorError) as error:
        raise SetupError(_explain(path, str(error))) from error


def _write(path: Path, fill: Callable[[Path], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = fresh_directory(path), _old(path)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        fill(fresh)
        _sync(fresh)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _sync_one(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def fresh_directory(path: Path) -> Path:
    """Where `write_directory` has it filled."""
    return path.with_name(f"{path.name}.new")


def existing(path: Path) -> Path:
    """Where the complete directory of that name is; `ConfigError` where there is none."""
    for candidate in (path, _old(path)):
        if candidate.is_dir():
            return candidate
    raise ConfigError(f"no checkpoint at {path}")


def point_to(root: Path, name: str) -> None:
    """Record, atomically, that `root / name` is the newest complete checkpoint."""
    fresh = root / f"{_POINTER}.new"
    fresh.write_text(f"{name}\n", encoding="utf-8")
    _sync_one(fresh)
    fresh.replace(root / _POINTER)
    _sync_one(root)


def latest(root: Path) -> Path | None:
    """The checkpoint that `point_to` recorded last; None where there is none."""
    pointer = root / _POINTER
    if not pointer.is_file():
        return None
    return existing(root / pointer.read_text(encoding="utf-8").strip())


def _explain(path: Path, error: str) -> str:
    if os.strerror(errno.ENOSPC) in error:
        return f"no space left for {path}: free some on that disk, then resume the run"
    return f"cannot write {path}: {error}"


def _old(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def _sync(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        _sync_one(path)
    _sync_one(root)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
