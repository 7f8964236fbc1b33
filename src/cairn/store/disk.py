"""Files that are there whole or not at all, and errors of the disk in words that say what to do."""

import errno
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cairn.errors import SetupError

_UNFINISHED = ".unfinished-"


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn what the operating system says about `path` into a `SetupError` that names it and the remedy."""
    try:
        yield
    except OSError as error:
        raise SetupError(_explain(path, error)) from error


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Put `data` at `path` at once: a reader, or a crash, sees the old content or the new. With `sync`, on the disk."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        if sync:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what a killed writer left half written. For the folder's only writer."""
    for leftover in folder.glob(f"**/{_UNFINISHED}*"):
        leftover.unlink(missing_ok=True)


def _explain(path: Path, error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return f"no space left for {path}: free some on that disk, then resume the run"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"no permission to write {path}: change its owner or mode, or choose another directory"
        case errno.ENOTDIR | errno.EEXIST:
            return f"cannot write {path}: {path.parent} is no folder"
        case _:
            return f"cannot write {path}: {error.strerror or error}"
