"""One writer for each run: a lock that the operating system gives back when its holder dies, however it dies."""

import fcntl
import os
from pathlib import Path

from cairn.errors import SetupError
from cairn.store.disk import writing


class RunLock:
    """Held from construction to `close`."""

    def __init__(self, path: Path) -> None:
        """A `SetupError` names the process that holds it already."""
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise SetupError(
                f"{path.parent} is in use by process {holder}: wait for it, or choose another directory"
            ) from None
        with writing(path):
            os.ftruncate(self._file, 0)
            os.write(self._file, str(os.getpid()).encode())
        self._held = True

    def close(self) -> None:
        """Idempotent."""
        if self._held:
            os.close(self._file)
            self._held = False
