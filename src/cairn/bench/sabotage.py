"""Faults for snapshots: what is killed, filled or damaged, and when."""

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

_POLL = 0.002
_LATEST = 0.4  # seconds into an operation
_SPARE = 24 << 20  # bytes that a filled folder may have left


class Fault(StrEnum):
    """What goes wrong outside."""

    DUMP = "criu killed while it saves"
    RESTORE = "criu killed while it opens"
    FIRST = "process 1 of a container killed"
    BROWSER = "the browser in a container killed"
    SUPERVISOR = "a container's supervisor killed"
    OWNER = "the owner killed"
    FULL = "memory full"
    DAMAGE = "an image damaged"


class Phase(StrEnum):
    """What is under way when it goes wrong."""

    SAVE = "save"
    OPEN = "open"


@dataclass(slots=True, kw_only=True)
class Strike:
    """One fault, and whether it has struck."""

    fault: Fault
    phase: Phase
    struck: bool = False


class Saboteur:
    """Strikes this process and its children, at moments that the dice choose."""

    def __init__(self, *, memory: Path, dice: random.Random) -> None:
        """`memory` is a file system of the campaign's own, to be filled."""
        self._memory = memory
        self._dice = dice

    def drawn(self) -> Strike:
        """The next fault."""
        fault = self._dice.choice(list(Fault))
        match fault:
            case Fault.DUMP:
                phase = Phase.SAVE
            case Fault.RESTORE | Fault.DAMAGE:
                phase = Phase.OPEN
            case _:
                phase = self._dice.choice(list(Phase))
        return Strike(fault=fault, phase=phase)

    @contextlib.contextmanager
    def striking(self, strike: Strike, phase: Phase, *, image: Path | None = None) -> Generator[None]:
        """Strike once while the block runs, where this is the fault's phase; `image` is what there is to damage."""
        if strike.phase is not phase:
            yield
        elif strike.fault is Fault.FULL:
            with self._filled():
                strike.struck = True
                yield
        elif strike.fault is Fault.DAMAGE:
            strike.struck = image is not None and self._damage(image)
            yield
        else:
            yield from self._killing(strike)

    def _killing(self, strike: Strike) -> Generator[None]:
        over = threading.Event()
        moment = self._dice.random() ** 2 * _LATEST  # early ones more often: a save may be over soon
        running = psutil.Process().children(recursive=True)
        known = frozenset(child.pid for child in running if strike.phase is Phase.OPEN)
        thread = threading.Thread(target=_kill_once, args=(strike, moment, known, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextlib.contextmanager
    def _filled(self) -> Generator[None]:
        ballast = self._memory / "ballast"
        left = self._dice.randrange(_SPARE)
        size = max(0, shutil.disk_usage(self._memory).free - left)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, size))
        try:
            yield
        finally:
            ballast.unlink()

    def _damage(self, image: Path) -> bool:
        """Change, shorten or remove a file of it; whether there was any."""
        files = [path for path in image.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size]
        if not files:
            return False
        victim = self._dice.choice(files)
        match self._dice.randrange(3):
            case 0:
                with victim.open("r+b") as file:
                    place = self._dice.randrange(victim.stat().st_size)
                    file.seek(place)
                    before = file.read(1)
                    file.seek(place)
                    file.write(bytes([before[0] ^ (1 << self._dice.randrange(8))]))
            case 1:
                os.truncate(victim, self._dice.randrange(victim.stat().st_size))
            case _:
                victim.unlink()
        return True


def _kill_once(strike: Strike, moment: float, known: frozenset[int], over: threading.Event) -> None:
    """Wait for a victim, then a moment, then kill it; give up when it is over."""
    if strike.fault is Fault.OWNER:
        if not over.wait(moment):
            os.kill(os.getpid(), signal.SIGKILL)
        return
    find = _VICTIMS[strike.fault]
    while not over.wait(_POLL):
        victims = [
            child for child in psutil.Process().children(recursive=True) if child.pid not in known and find(child)
        ]
        if victims:
            time.sleep(moment)
            with contextlib.suppress(psutil.Error):
                victims[0].kill()
                strike.struck = True
            return


def _criu(action: str) -> Callable[[psutil.Process], bool]:
    def found(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            criu = action in words and any(word.endswith("/criu") for word in words)
            return criu and not any(word.endswith("/container.sh") for word in words)
        return False

    return found


def _first(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "/srv/agent.py" in process.cmdline()
    return False


def _browser(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        parent = process.parent()
        return parent is not None and _first(parent)
    return False


def _supervisor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(word.endswith("/container.sh") for word in process.cmdline())
    return False


_VICTIMS: dict[Fault, Callable[[psutil.Process], bool]] = {
    Fault.DUMP: _criu("dump"),
    Fault.RESTORE: _criu("restore"),
    Fault.FIRST: _first,
    Fault.BROWSER: _browser,
    Fault.SUPERVISOR: _supervisor,
}
