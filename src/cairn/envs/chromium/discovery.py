"""Which browser this machine has, and what it can do."""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cairn.errors import SetupError

_SHELL_NAMES = ("chromium-headless-shell", "chrome-headless-shell", "headless_shell")
_CHROME_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SHELL_DIRECTORIES = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/usr/lib64/chromium-browser")
_FIX = "install one with `apt-get install chromium-headless-shell`, or name a Chrome by its path"
_FIX_SNAP = (
    "install Google Chrome's .deb package, or take Debian's chromium-headless-shell, and name it in CAIRN_BROWSER"
)


class Channel(StrEnum):
    """Kinds of browser that the driver speaks to."""

    SHELL = "headless-shell"
    """Draws a frame only when it is told to (BeginFrameControl): several times faster."""

    CHROME = "chrome"
    """Any Chrome or Chromium, started with `--headless=new`; draws as fast as it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserBinary:
    """An executable and the way to drive it."""

    path: Path
    channel: Channel


def find_browser(*, channel: Channel | None = None, executable: Path | None = None) -> BrowserBinary:
    """The browser at `executable`, else the first one installed, preferring the headless shell.

    Raises `SetupError`, with the fix, where there is none.
    """
    if executable is not None:
        return _described(executable, channel)
    if channel is not Channel.CHROME:
        shell = _first(_SHELL_NAMES)
        if shell is not None:
            return BrowserBinary(path=shell, channel=Channel.SHELL)
        if channel is Channel.SHELL:
            raise SetupError(f"no headless shell of Chromium found; {_FIX}")
    chrome = _first(_CHROME_NAMES)
    if chrome is None:
        snap = next((found for name in _CHROME_NAMES if (found := shutil.which(name))), None)
        if snap is not None:
            return _described(Path(snap), Channel.CHROME)
        raise SetupError(f"no Chromium or Chrome found; {_FIX}")
    return BrowserBinary(path=chrome, channel=Channel.CHROME)


def _described(executable: Path, channel: Channel | None) -> BrowserBinary:
    if not executable.is_file() or not os.access(executable, os.X_OK):
        raise SetupError(f"no executable browser at {executable}; {_FIX}")
    if _is_snap(executable):
        raise SetupError(f"{executable} only starts Chromium from a snap, which can be driven by no pipe; {_FIX_SNAP}")
    guessed = Channel.SHELL if executable.name in _SHELL_NAMES else Channel.CHROME
    return BrowserBinary(path=executable, channel=channel or guessed)


def _first(names: tuple[str, ...]) -> Path | None:
    """The program itself rather than a distribution's wrapper script, which would add a process."""
    for name in names:
        for directory in _SHELL_DIRECTORIES:
            candidate = Path(directory, name)
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate
        found = shutil.which(name)
        if found is not None and not _is_snap(Path(found)):
            return Path(found)
    return None


def _is_snap(path: Path) -> bool:
    """Whether it is Ubuntu's wrapper, or a link into /snap: its confinement hides our pipes and scratch directories."""
    if path.resolve().is_relative_to("/snap") or path.resolve() == Path("/usr/bin/snap"):
        return True
    with path.open("rb") as file:
        start = file.read(4096)
    return start.startswith(b"#!") and b"/snap/bin/" in start
