"""Where snapshots live: a folder that anyone may name, and a folder in memory that goes with it."""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SetupError, StoreError

_IN_MEMORY = "cairn-images-"
_OF = "home"  # in the folder in memory: whose it is
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of ours in it, whose name others cannot take


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The places of one collection of snapshots, which any process of this user may open."""

    folder: Path

    @property
    def shelf(self) -> Path:
        """The catalogue."""
        return self.folder / "shelf"

    @property
    def blobs(self) -> Path:
        """Screenshots."""
        return self.folder / "blobs"

    @property
    def states(self) -> Path:
        """What environments say of their own states."""
        return self.folder / "states"

    @property
    def disk(self) -> Path:
        """Images that were moved out of memory."""
        return self.folder / "images"

    @property
    def memory(self) -> Path:
        """Images in memory."""
        named = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
        return MEMORY / f"{_IN_MEMORY}{named}"

    def claim(self) -> None:
        """Make the folder in memory, and note whose it is. Raises `SetupError` where another user has it."""
        self.memory.mkdir(mode=0o700, exist_ok=True)
        if self.memory.is_symlink() or self.memory.stat().st_uid != os.geteuid():
            raise SetupError(f"{self.memory} belongs to another user: remove it, or keep snapshots in another folder")
        (self.memory / _OF).write_text(str(self.folder.resolve()), encoding="utf-8")

    def tidy(self) -> None:
        """Remove the folder in memory where no image is in it."""
        with contextlib.suppress(OSError):
            if [path.name for path in self.memory.iterdir()] == [_OF]:
                shutil.rmtree(self.memory)

    def raze(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.memory, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def shared(self) -> Generator[None]:
        """For as long as somebody saves here, nobody collects what lies about."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def alone(self) -> Generator[bool]:
        """Whether nobody else is here; as long as the block lasts, nobody comes."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True

    @contextlib.contextmanager
    def _locked(self, how: int) -> Generator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"no snapshots can be kept in {self.folder}: {error.strerror}") from error
        try:
            fcntl.flock(file, how)
            yield
        finally:
            os.close(file)


def orphaned_images(memory: Path = MEMORY) -> Iterator[Path]:
    """Folders in memory whose home is gone."""
    for note in memory.glob(f"{_IN_MEMORY}*/{_OF}"):
        with contextlib.suppress(OSError):
            if not Path(note.read_text(encoding="utf-8")).is_dir():
                yield note.parent
