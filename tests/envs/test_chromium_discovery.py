"""Which browser is taken, and what is said where none can be."""

from pathlib import Path

import pytest

from cairn.envs.chromium import discovery
from cairn.envs.chromium.discovery import Channel, find_browser
from cairn.errors import SetupError

SNAP = "#!/bin/sh\nif ! [ -x /snap/bin/chromium ]; then\n  echo install it >&2\n  exit 1\nfi\nexec /snap/bin/chromium\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, and no browser where distributions put it."""
    monkeypatch.setattr(discovery, "_SHELL_DIRECTORIES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, text: str = "\x7fELF") -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_headless_shell_is_taken_first(programs: Path) -> None:
    program(programs, "chromium")
    shell = program(programs, "chromium-headless-shell")
    assert (find_browser().path, find_browser().channel) == (shell, Channel.SHELL)


def test_any_chrome_will_do(programs: Path) -> None:
    chrome = program(programs, "google-chrome")
    assert (find_browser().path, find_browser().channel) == (chrome, Channel.CHROME)


def test_a_wrapper_that_starts_a_snap_is_passed_over(programs: Path) -> None:
    program(programs, "chromium-browser", SNAP)
    chrome = program(programs, "google-chrome")
    assert find_browser().path == chrome


def test_where_there_is_only_a_snap_the_error_says_what_to_do(programs: Path) -> None:
    program(programs, "chromium-browser", SNAP)
    with pytest.raises(SetupError, match=r"chromium-browser only starts Chromium from a snap.*CAIRN_BROWSER"):
        find_browser()


def test_a_snap_that_is_named_is_refused_too(programs: Path) -> None:
    wrapper = program(programs, "mine", SNAP)
    with pytest.raises(SetupError, match="snap"):
        find_browser(executable=wrapper)


def test_where_there_is_none_the_error_says_what_to_install(programs: Path) -> None:
    with pytest.raises(SetupError, match=r"no Chromium or Chrome found; install .*chromium-headless-shell"):
        find_browser()
    with pytest.raises(SetupError, match="no executable browser at /missing"):
        find_browser(executable=Path("/missing"))
