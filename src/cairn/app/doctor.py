"""What this machine has, and what to do about what it lacks."""

import asyncio
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from cairn.app.snapshots import StoreReport, survey
from cairn.data.snapshot import StoreKind
from cairn.envs.chromium.discovery import Channel, find_browser
from cairn.errors import CairnError
from cairn.snapshots.containers.cgroups import unlimited_here

_FREE_GB = 5.0
_MEMORY_GB = 4.0
_SHARED_MEMORY_MB = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `needed` ones stop the quickstart."""

    what: str
    ok: bool
    needed: bool
    detail: str
    fix: str = ""


def diagnose() -> tuple[Finding, ...]:
    """Look at everything, whatever is missing."""
    return (*(look() for look in _LOOKS), *_snapshot_stores())


def _python() -> Finding:
    return Finding(
        what="python",
        ok=sys.version_info >= (3, 11),
        needed=True,
        detail=platform.python_version(),
        fix="install Python 3.11 or newer",
    )


def _browser() -> Finding:
    try:
        named = os.environ.get("CAIRN_BROWSER")
        found = find_browser(executable=Path(named) if named else None)
    except CairnError as error:
        return Finding(what="browser", ok=False, needed=True, detail="none", fix=str(error))
    slow = found.channel is not Channel.SHELL
    told = _version_of(found.path)
    if "Chrom" not in told:
        return Finding(what="browser", ok=False, needed=True, detail=told, fix=f"{found.path} is no Chromium or Chrome")
    return Finding(
        what="browser",
        ok=True,
        needed=True,
        detail=f"{told} ({found.channel})",
        fix="apt-get install chromium-headless-shell draws frames several times faster" if slow else "",
    )


def browser_version() -> str:
    """The browser that runs would use, as it names itself; a `SetupError` where there is none."""
    named = os.environ.get("CAIRN_BROWSER")
    return _version_of(find_browser(executable=Path(named) if named else None).path)


def _version_of(path: Path) -> str:
    try:
        told = subprocess.run(  # noqa: S603 - the browser that was found
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not answer: {error}"
    return told.stdout.strip() or str(path)


def _fonts() -> Finding:
    """Pages are laid out with whatever fonts there are; without any, text is boxes."""
    folders = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".fonts")
    count = sum(1 for f in folders if f.is_dir() for _ in f.rglob("*.[to]t[fc]"))
    return Finding(
        what="fonts",
        ok=count > 0,
        needed=True,
        detail=f"{count} files",
        fix="apt-get install fonts-liberation fonts-dejavu-core",
    )


def _package(name: str, extra: str, *, needed: bool) -> Callable[[], Finding]:
    def look() -> Finding:
        there = importlib.util.find_spec(name) is not None
        return Finding(
            what=name,
            ok=there,
            needed=needed,
            detail=version(name) if there else "not installed",
            fix="" if there else f"pip install 'cairn[{extra}]'",
        )

    return look


def _accelerator() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding(what="accelerator", ok=False, needed=False, detail="unknown without torch")
    import torch

    if torch.cuda.is_available():
        return Finding(what="accelerator", ok=True, needed=False, detail=torch.cuda.get_device_name(0))
    flags = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in _cpu_flags()]
    return Finding(
        what="accelerator",
        ok=True,
        needed=False,
        detail=f"none; {os.cpu_count()} CPU cores with {flags[0] if flags else 'no vector extension known here'}",
    )


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def _memory() -> Finding:
    gigabytes = psutil.virtual_memory().available / 1e9
    return Finding(
        what="memory",
        ok=gigabytes >= _MEMORY_GB,
        needed=False,
        detail=f"{gigabytes:.1f} GB available",
        fix=f"the quickstart wants {_MEMORY_GB:.0f} GB; lower environment.browsers",
    )


def _disk() -> Finding:
    gigabytes = shutil.disk_usage(Path.cwd()).free / 1e9
    return Finding(
        what="disk",
        ok=gigabytes >= _FREE_GB,
        needed=False,
        detail=f"{gigabytes:.1f} GB free here",
        fix=f"free {_FREE_GB:.0f} GB, or choose another directory with --out",
    )


def _shared_memory() -> Finding:
    path = Path("/dev/shm")  # noqa: S108 - the mount itself is asked about, nothing is written
    megabytes = shutil.disk_usage(path).total / 1e6 if path.is_dir() else 0.0
    return Finding(
        what="shared memory",
        ok=megabytes >= _SHARED_MEMORY_MB,
        needed=False,
        detail=f"{megabytes:.0f} MB in /dev/shm",
        fix="start the container with more, as in --shm-size=1g",
    )


def _snapshot_stores() -> tuple[Finding, ...]:
    return tuple(
        Finding(
            what=f"snapshots: {report.kind}",
            ok=report.usable.ok,
            needed=False,
            detail=(f"works{_without_limits(report)}" if report.usable.ok else report.usable.reason),
            fix=report.usable.fix,
        )
        for report in asyncio.run(survey())
    )


def _without_limits(report: StoreReport) -> str:
    if report.kind not in {StoreKind.CRIU, StoreKind.PODMAN}:
        return ""
    unlimited = unlimited_here()
    return f", but this host lets nobody limit a container's {' and '.join(unlimited)}" if unlimited else ""


_LOOKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _browser,
    _fonts,
    _package("miniwob", "miniwob", needed=True),
    _package("torch", "train", needed=True),
    _package("transformers", "train", needed=True),
    _package("matplotlib", "report", needed=True),
    _package("gymnasium", "gym", needed=False),
    _accelerator,
    _memory,
    _disk,
    _shared_memory,
)
