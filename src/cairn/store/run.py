"""A run's directory: everything that a run was, is and came to.

::

    recipe.toml     the resolved configuration
    run.json        versions, seed, when it began
    events.jsonl    what happened, one event a line
    ledger.json     what it cost and what it came to
    trajectories/   every group, in segments
    unfinished      what was played of the groups that are not complete yet
    blobs/          every screenshot, once
    lock            held by the process that writes here
"""

from __future__ import annotations  # pandas is named in a signature, and imported by whoever calls it

import os
import platform
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from cairn.data import ledger as ledgers
from cairn.data.ledger import Ledger
from cairn.data.trajectory import LostTrajectory, ScoredGroup, ScoredTrajectory
from cairn.errors import ConfigError, StoreError
from cairn.store.blobs import BlobFolder
from cairn.store.disk import write_whole
from cairn.store.events import JsonlSink, Logged, Now, read_events, wall_clock
from cairn.store.ledger import read_ledger, write_ledger
from cairn.store.lock import RunLock
from cairn.store.segments import SegmentStore, read_groups, read_rows
from cairn.store.table import turn_table
from cairn.store.unfinished import Unfinished

if TYPE_CHECKING:
    import pandas as pd

_GIT_SECONDS = 10.0
_PACKAGES = ("cairn", "numpy", "pyarrow", "torch", "transformers", "miniwob")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a run was made with."""

    began: datetime
    seed: int
    python: str
    machine: str
    packages: Mapping[str, str]  # versions of those that are installed
    cores: int | None = None
    command: str | None = None  # that began it
    commit: str | None = None  # of Cairn, where it runs from a checkout; ends in "+" where files were changed since


_INFO = TypeAdapter(RunInfo)


class RunWriter:
    """The only writer of a run's directory; another one is refused for as long as this one lives."""

    def __init__(self, path: Path, *, now: Now = wall_clock, sync: bool = True) -> None:
        """Open what is there. Call `create` or `resume`."""
        self.path = path
        self._lock = RunLock(path / "lock")
        self.trajectories = SegmentStore(path / "trajectories", sync=sync)
        self.blobs = BlobFolder(path / "blobs")
        self.events = JsonlSink(path / "events.jsonl", now=now)
        self._unfinished = Unfinished(path / "unfinished", sync=sync)
        self._newest: ScoredGroup | None = None  # recorded here
        self._ledger = Ledger()
        self._closed = False

    @classmethod
    def create(cls, path: Path, *, recipe: str, seed: int, now: Now = wall_clock, sync: bool = True) -> Self:
        """Begin a run in a directory that holds none; `recipe` is the resolved configuration, in TOML."""
        if (path / "run.json").exists():
            raise ConfigError(f"{path} holds a run already: resume it, or choose another directory")
        writer = cls(path, now=now, sync=sync)
        write_whole(path / "recipe.toml", recipe.encode(), sync=sync)
        write_whole(path / "run.json", _INFO.dump_json(_info(seed, now()), indent=1), sync=sync)
        return writer

    @classmethod
    def resume(cls, path: Path, *, now: Now = wall_clock, sync: bool = True) -> Self:
        """Go on with a run. What a killed writer left is repaired, and the ledger counted again from what is stored."""
        if not (path / "run.json").exists():
            raise ConfigError(f"{path} holds no run to resume")
        writer = cls(path, now=now, sync=sync)
        writer._recover()
        return writer

    @property
    def ledger(self) -> Ledger:
        """Everything counted so far, before the last resume too."""
        return self._ledger

    def record(self, group: ScoredGroup) -> None:
        """Store a group and count it. Durable on return."""
        self.trajectories.append(group)
        self._newest = group
        self._unfinished.complete(group.plan.group_id)
        self.count(ledgers.of_groups([group]))

    def note(self, result: ScoredTrajectory | LostTrajectory) -> None:
        """Keep one trajectory of a group that is not complete. Durable on return: `resume` records what is left."""
        self._unfinished.note(result)

    def count(self, more: Ledger) -> None:
        """Add to the ledger."""
        self._ledger = self._ledger + more
        write_ledger(self.path / "ledger.json", self._ledger)

    def close(self) -> None:
        """Record what is left of groups that will not be complete: it was played, and counts. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self.count(ledgers.of_groups(self._keep_unfinished(self._newest)))
        finally:
            self.trajectories.close()
            self._unfinished.close()
            self.events.close()
            self._lock.close()

    def _recover(self) -> None:
        """Record what a killed process had played of incomplete groups, and count everything afresh."""
        if self._unfinished:
            newest = deque(self.trajectories.read(), maxlen=1)
            self._keep_unfinished(newest[0] if newest else None)
        self.count(recount(read_ledger(self.path / "ledger.json"), self.trajectories.read()))

    def _keep_unfinished(self, newest: ScoredGroup | None) -> Sequence[ScoredGroup]:
        groups = self._unfinished.recovered(newest)
        for group in groups:
            self.trajectories.append(group)
        self._unfinished.clear()
        return groups

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's directory, read only; its writer may be at work meanwhile."""

    path: Path
    recipe: str  # TOML
    info: RunInfo

    def __iter__(self) -> Iterator[ScoredGroup]:
        """Every group, in the order of recording."""
        return read_groups(self.path / "trajectories")

    @property
    def blobs(self) -> BlobFolder:
        """The screenshots."""
        return BlobFolder(self.path / "blobs")

    @property
    def ledger(self) -> Ledger:
        """What the run has cost and come to so far."""
        return read_ledger(self.path / "ledger.json")

    def events(self) -> Iterator[Logged]:
        """Everything that was logged, in order."""
        return read_events(self.path / "events.jsonl")

    def to_arrow(self) -> pa.Table:
        """One row per turn, with what its trajectory and its group came to beside it."""
        return turn_table(read_rows(self.path / "trajectories"))

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame. Needs pandas."""
        return self.to_arrow().to_pandas()


def open_run(path: Path | str) -> Run:
    """Read a run, finished or not; a `ConfigError` says where there is none."""
    folder = Path(path)
    try:
        info = _INFO.validate_json((folder / "run.json").read_bytes())
        recipe = (folder / "recipe.toml").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        if stages := _stages(folder):
            which = f"give the folder of one of its stages: {', '.join(map(str, stages))}"
            raise ConfigError(f"{folder} holds a run with stages, and no run of its own: {which}") from None
        raise ConfigError(f"{folder} holds no run: {Path(error.filename).name} is missing") from None
    except ValidationError as error:
        raise StoreError(f"{folder / 'run.json'} is damaged: {error.errors()[0]['msg']}") from error
    return Run(path=folder, recipe=recipe, info=info)


def _stages(folder: Path) -> list[Path]:
    """The stages that have begun in a folder: each is a run, with its recipe beside it."""
    return sorted(run.parent for run in folder.glob("*/run.json") if Path(f"{run.parent}.toml").is_file())


def recount(saved: Ledger, groups: Iterator[ScoredGroup]) -> Ledger:
    """Count stored groups afresh: a process may have died between storing a group and counting it."""
    kept = {key: value for key, value in saved.sums.items() if key[2] in ledgers.FROM_UPDATES}
    return Ledger(sums=kept) + ledgers.of_groups(groups)


def _info(seed: int, began: datetime) -> RunInfo:
    return RunInfo(
        began=began,
        seed=seed,
        python=platform.python_version(),
        machine=platform.platform(),
        packages={name: found for name in _PACKAGES if (found := _version(name))},
        cores=os.cpu_count(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        commit=_commit(Path(__file__).parent),
    )


def _commit(folder: Path) -> str | None:
    """What `folder` is a checkout of; None for an installed package, or without git."""
    try:
        found = [_git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--", folder.parent)]
    except (OSError, subprocess.SubprocessError):
        return None
    return found[0][:12] + ("+" if found[1] else "")


def _git(folder: Path, *command: str | Path) -> str:
    told = subprocess.run(  # noqa: S603 - a fixed command
        ["git", "-C", folder, *command],  # noqa: S607 - whichever git the user has
        capture_output=True,
        check=True,
        text=True,
        timeout=_GIT_SECONDS,
    )
    return told.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
