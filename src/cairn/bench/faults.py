"""What a run survives: browsers that are killed under it, and its own process killed at any moment."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from cairn.data.ledger import Quantity
from cairn.data.trajectory import RULES, Outcome
from cairn.errors import SetupError
from cairn.store.run import open_run

_SUPERVISOR = "cairn-browser"  # how the shell above each browser is called
_START_SECONDS = 300.0
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 15.0  # for processes that are going already

_SHORT = (
    "demonstrations.per_template=4",
    "imitation.minutes=0.2",
    "evaluation.per_template=2",
    "checkpoint_every_updates=3",
    "rollout.breaker_share=0.9",
)
"""A run with every phase in it, most of it reinforcement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is still there after the end, in words; nothing is right."""

    processes: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserKills:
    """A run whose browsers were killed under it."""

    minutes: float
    kills: int
    exit_status: int
    trajectories: int  # that count
    lost: int  # stored as lost outside
    lost_in_ledger: int
    rewarded_though_lost: int  # stored with a reward and an outside failure, or without evidence
    left: Left

    @property
    def ok(self) -> bool:
        """Whether the run kept every promise."""
        counted = self.lost == self.lost_in_ledger and not self.rewarded_though_lost
        return self.exit_status == 0 and counted and not (self.left.processes or self.left.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerKills:
    """A run that was killed and resumed."""

    kills: int
    exit_status: int  # of the last start, which went on to the end
    groups: int
    vanished: int  # trajectories that were stored before a kill, and not afterwards
    left: Left

    @property
    def ok(self) -> bool:
        """Whether the run kept every promise."""
        return self.exit_status == 0 and not (self.vanished or self.left.processes or self.left.files)


class Trainee:
    """`cairn train` as a process, with a temporary directory of its own."""

    def __init__(self, folder: Path, *, recipe: str, settings: Sequence[str]) -> None:
        """`folder` will hold the run, its log and what it leaves behind."""
        self.run = folder / "run"
        self._recipe = recipe
        self._settings = tuple(settings)
        self._temporary = folder / "tmp"
        self._log = folder / "log"
        self._seen: dict[int, psutil.Process] = {}
        self._temporary.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def started(self) -> Generator[subprocess.Popen[bytes]]:
        """Start the run, or resume it where it was begun; it does not outlive the block."""
        begun = (self.run / "run.json").exists()
        sets = [] if begun else [word for setting in self._settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "cairn.cli.main", "train", self._recipe, "--quiet", "--out", str(self.run)]
        command += ["--resume"] if begun else sets
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(self._temporary)}
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def browsers(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """The browsers that run now, without their supervisors and their own children."""
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                self._seen[child.pid] = child
                with contextlib.suppress(psutil.Error):
                    if _SUPERVISOR in child.cmdline()[:4]:
                        found += child.children()
        return found

    def last_words(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]

    def left(self) -> Left:
        """Processes that were ever seen below it, and its temporary files, once those that are going had their time."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            alive = [described for process in self._seen.values() if (described := _living(process)) is not None]
            files = sorted(path.name for path in self._temporary.iterdir() if path.name.startswith("cairn-"))
            if not (alive or files) or time.monotonic() > deadline:
                return Left(processes=tuple(alive), files=tuple(files))
            time.sleep(_POLL_SECONDS)


def _living(process: psutil.Process) -> str | None:
    """Its number and name; None where it is over, reaped or not."""
    with contextlib.suppress(psutil.Error):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.pid} {process.name()}"
    return None


def kill_browsers(
    *, minutes: float, every: float = 4.0, seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> BrowserKills:
    """Train for `minutes`, and kill -9 a random browser about every `every` seconds until the run ends."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    kills = 0
    with tempfile.TemporaryDirectory(prefix="cairn-faults-", ignore_cleanup_errors=True) as name:
        trainee = Trainee(Path(name), recipe="quickstart", settings=(*_SHORT, f"reinforcement.minutes={minutes}"))
        with trainee.started() as process:
            while _lives_on(process, dice.uniform(0.5, 1.5) * every):
                browsers = trainee.browsers(process)
                if browsers and _killed(dice.choice(browsers)):
                    kills += 1
                    progress(f"{kills} browsers killed")
            status = process.wait()
        if not (trainee.run / "run.json").exists():
            raise SetupError(f"the run did not begin: {trainee.last_words()}")
        return _judged(trainee, minutes=minutes, kills=kills, status=status)


def _judged(trainee: Trainee, *, minutes: float, kills: int, status: int) -> BrowserKills:
    run = open_run(trainee.run)
    kept = lost = wrong = 0
    for group in run:
        lost += sum(one.outcome is Outcome.INFRASTRUCTURE_ERROR for one in group.lost)
        for member in group.members:
            kept += RULES[member.outcome].in_success_rate
            wrong += member.trajectory.error is not None or member.trajectory.evidence is None
    return BrowserKills(
        minutes=minutes,
        kills=kills,
        exit_status=status,
        trajectories=kept,
        lost=lost,
        lost_in_ledger=int(run.ledger.total(Quantity.INFRASTRUCTURE_ERROR)),
        rewarded_though_lost=wrong,
        left=trainee.left(),
    )


def kill_trainer(
    *,
    kills: int,
    settings: Sequence[str] = (*_SHORT, "reinforcement.minutes=2.0"),
    longest: float = 30.0,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> TrainerKills:
    """Kill -9 a training process `kills` times, each within `longest` seconds of its start; then let it end."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    before: Counter[tuple[str, int, int]] = Counter()
    vanished = done = 0
    with tempfile.TemporaryDirectory(prefix="cairn-faults-", ignore_cleanup_errors=True) as name:
        trainee = Trainee(Path(name), recipe="quickstart", settings=settings)
        while done < kills:
            with trainee.started() as process:
                _wait_for(trainee, process)
                ended = not _lives_on(process, dice.uniform(0.0, longest))
                trainee.browsers(process)
            if ended:
                break  # it came to its end before the next kill
            done += 1
            after = _stored(trainee.run)
            vanished += sum((before - after).values())
            before = after
            progress(f"{done} of {kills} kills, {sum(after.values())} trajectories")
        with trainee.started() as process:
            status = process.wait()
        vanished += sum((before - _stored(trainee.run)).values())
        groups = sum(1 for _ in open_run(trainee.run))
        return TrainerKills(kills=done, exit_status=status, groups=groups, vanished=vanished, left=trainee.left())


def _stored(folder: Path) -> Counter[tuple[str, int, int]]:
    """Every stored trajectory by group, sibling and attempt; reading them all shows that they can be read."""
    return Counter(
        (str(group.plan.group_id), one.trajectory.sibling, one.trajectory.attempt)
        for group in open_run(folder)
        for one in (*group.members, *group.lost)
    )


def _wait_for(trainee: Trainee, process: subprocess.Popen[bytes]) -> None:
    """Until the run's directory is there."""
    deadline = time.monotonic() + _START_SECONDS
    while not (trainee.run / "run.json").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SetupError(f"the run did not begin: {trainee.last_words()}")
        time.sleep(_POLL_SECONDS)


def _lives_on(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _killed(process: psutil.Process) -> bool:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.Error:
        return False
    return True
