"""What snapshots survive: criu, containers, browsers and their owner killed, memory full, images damaged."""

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from cairn.bench.sabotaged import CYCLE, Cycle, Places
from cairn.errors import SetupError
from cairn.scratch import make_root, mark_in, remove_all
from cairn.snapshots.containers.cgroups import marked_groups
from cairn.snapshots.containers.leftovers import leftovers

_MEMORY = 2 << 30  # bytes of the file system that is to be filled
_SECONDS = 900.0  # for one process, however many cycles it has before it
_PATIENCE_SECONDS = 20.0
_POLL_SECONDS = 0.1
_WORDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCount:
    """Of one kind of fault."""

    fault: str
    tried: int
    struck: int  # some come too late to find their victim
    saved: int  # cycles in which the state was saved all the same
    opened: int  # cycles in which it was opened in the end, in the right state


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What was left after a start that followed all the kills; nothing is right."""

    processes: tuple[str, ...]
    groups: tuple[str, ...]
    mounts: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def none(self) -> bool:
        """Whether nothing was."""
        return not (self.processes or self.groups or self.mounts or self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFaults:
    """A campaign of faults, and what they came to."""

    seed: int
    seconds: float
    counts: tuple[FaultCount, ...]
    owners_killed: int
    refused: int  # operations that failed as session errors, as they should
    reviewed: int  # states that were kept throughout, opened in the end
    wrong: tuple[str, ...]  # wrong states, damaged images opened, untyped or endless failures, things left behind
    remains: Remains

    @property
    def faults(self) -> int:
        """How many were tried."""
        return sum(count.tried for count in self.counts)

    @property
    def ok(self) -> bool:
        """Whether nothing happened that must never happen."""
        return not self.wrong and self.remains.none


def sabotage_snapshots(
    *, faults: int, seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> SnapshotFaults:
    """Save and open states of MiniWoB++ while one thing after another goes wrong; needs root and what criu needs."""
    if os.geteuid() != 0:
        raise SetupError("containers are made, and their processes killed, by root: run this as root")
    begun = time.monotonic()
    dice = random.Random(seed)  # noqa: S311 - no secret
    owners: list[int] = []
    killed = 0
    with _campaign() as places:
        done = 0
        while done < faults:
            status, owner = _run(places, dice.randrange(1 << 30), done, faults)
            owners.append(owner)
            cycles = _read(places.journal)
            done = max((cycle.number + 1 for cycle in cycles), default=0)
            killed += status < 0
            progress(f"{done} of {faults} faults, {killed} owners killed")
            if status > 0 or (status < 0 and not _owner_was_to_die(cycles)):
                raise SetupError(f"the process under test ended with status {status}: {_last_words(places)}")
        cycles = _read(places.journal)
        places.journal.unlink()
        status, owner = _run(places, dice.randrange(1 << 30))
        owners.append(owner)
        review = _read(places.journal)
        wrong = [] if status == 0 else [f"the review ended with status {status}: {_last_words(places)}"]
        return SnapshotFaults(
            seed=seed,
            seconds=time.monotonic() - begun,
            counts=counted(cycles),
            owners_killed=killed,
            refused=sum(len(cycle.refused) for cycle in cycles),
            reviewed=len(review),
            wrong=(*wrong, *(f"{c.fault}, {what}" for c in (*cycles, *review) for what in c.wrong)),
            remains=_remains(places, owners),
        )


def faults_table(result: SnapshotFaults) -> Table:
    """A row for each kind of fault."""
    table = Table("fault", "tried", "struck", "saved", "opened")
    for count in result.counts:
        table.add_row(count.fault, *(str(n) for n in (count.tried, count.struck, count.saved, count.opened)))
    return table


def faults_json(result: SnapshotFaults) -> str:
    """One line."""
    return json.dumps({**dataclasses.asdict(result), "faults": result.faults, "ok": result.ok})


@contextlib.contextmanager
def _campaign() -> Generator[Places]:
    """Folders of the campaign's own, with a file system in memory; nothing of them outlives the block."""
    root = make_root()
    places = Places(folder=root)
    for folder in (places.memory, places.disk, root / "tmp"):
        folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_MEMORY}", "cairn-faults", str(places.memory)]
    try:
        made = subprocess.run(mount, check=False, capture_output=True, text=True)  # noqa: S603 - our own command
        if made.returncode:
            raise SetupError(f"no file system could be mounted to be filled: {made.stderr.strip()}")
        yield places
    finally:
        for path in places.memory.iterdir():  # mounts of others may hold on to the file system
            remove_all(path)
        subprocess.run(["umount", "-l", str(places.memory)], check=False, capture_output=True)  # noqa: S603, S607
        remove_all(root)


def _run(places: Places, seed: int, *between: int) -> tuple[int, int]:
    """One process under test: its status, below zero where it was killed, and its number."""
    command = [sys.executable, "-m", "cairn.bench.sabotaged", str(places.folder), str(seed), *map(str, between)]
    with (places.folder / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(places.folder / "tmp")}
        )
        try:
            return process.wait(_SECONDS), process.pid
        except subprocess.TimeoutExpired as error:
            raise SetupError(f"the process under test did not end within {_SECONDS:g} s") from error
        finally:
            process.kill()
            process.wait()


def _read(journal: Path) -> list[Cycle]:
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return [CYCLE.validate_json(line) for line in lines]


def _owner_was_to_die(cycles: Sequence[Cycle]) -> bool:
    return bool(cycles) and not cycles[-1].ended


def counted(journal: Iterable[Cycle]) -> tuple[FaultCount, ...]:
    """By kind. The last that was noted of a cycle counts: its end, where its process lived to see it."""
    cycles = {cycle.number: cycle for cycle in journal}.values()
    tried = Counter(cycle.fault for cycle in cycles)
    return tuple(
        FaultCount(
            fault=fault,
            tried=tried[fault],
            struck=sum(cycle.struck or not cycle.ended for cycle in cycles if cycle.fault == fault),
            saved=sum(cycle.saved for cycle in cycles if cycle.fault == fault),
            opened=sum(cycle.opened for cycle in cycles if cycle.fault == fault),
        )
        for fault in sorted(tried)
    )


def _last_words(places: Places) -> str:
    return (places.folder / "log").read_text(encoding="utf-8", errors="replace").strip()[-_WORDS:]


# ── what is left ──────────────────────────────────────────────────────────────


def _remains(places: Places, owners: Sequence[int]) -> Remains:
    """Looked for without the marks too: by the campaign's folder, and by the numbers of those that were killed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        found = Remains(
            processes=tuple(_processes_of(places.folder, owners)),
            groups=tuple(str(group) for group in marked_groups() if _maker(group.name) in owners),
            mounts=tuple(_mounts_of(places.folder)),
            files=tuple(_files_of(places, owners)),
        )
        if found.none or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_SECONDS)


def _maker(name: str) -> int:
    """The number of the process whose mark it is."""
    return int((mark_in(name) or "0").partition("-")[0])


def _processes_of(folder: Path, owners: Sequence[int]) -> Generator[str]:
    """Those that were started with the folder in their command, or live on mounts that an owner has made."""
    signs = [f" cairn-{owner}-".encode() for owner in owners]
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) in (os.getpid(), os.getppid()):
            continue
        with contextlib.suppress(OSError):
            command, mounts = (process / "cmdline").read_bytes(), (process / "mountinfo").read_bytes()
            if str(folder).encode() in command or any(sign in mounts for sign in signs):
                yield f"{process.name} {command[:100].decode(errors='replace')}"


def _mounts_of(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(folder) in line and "cairn-faults" not in line]


def _files_of(places: Places, owners: Sequence[int]) -> Generator[str]:
    """What is half written, what scratch folders there are, and what of this has a mark."""
    yield from (str(path) for path in places.folder.rglob("*.new"))
    for folder in (places.memory, places.folder / "tmp"):
        yield from (str(path) for path in folder.glob("cairn-*"))
    yield from (str(left.where) for left in leftovers() if int(left.owner.partition("-")[0]) in owners)
