"""What every container has over its root file system: the agent, and the pages that it serves."""

import hashlib
import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from cairn.snapshots.containers.running import SOCKET

_SITE = "/srv/site"
_SYS_RESOURCE = 24
_PLAIN_USER = 1000


def write_layer(layer: Path, *, site: Path) -> None:
    """Fill the folder `layer`, readable for everybody. May be repeated."""
    served = layer / "srv"
    served.mkdir(parents=True, exist_ok=True)
    copy_script("agent.py", served / "agent.py")
    shutil.copytree(site, served / "site", dirs_exist_ok=True)
    for path in layer.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    layer.chmod(0o755)


def copy_script(name: str, place: Path) -> None:
    """A file of this package, as a file."""
    with as_file(files("cairn.snapshots.containers").joinpath(name)) as source:
        shutil.copyfile(source, place)


def agent_command(browser: Sequence[str]) -> list[str]:
    """Starts the agent, as process 1, and the browser from it."""
    user = _PLAIN_USER if _may_set_limits() else 0
    return ["python3", "-BIS", "/srv/agent.py", SOCKET, _SITE, str(user), "--", *browser]


def fingerprint(site: Path) -> str:
    """Of the files' names and sizes."""
    described = hashlib.sha256()
    for path in sorted(site.rglob("*")):
        if path.is_file():
            described.update(f"{path.relative_to(site)} {path.stat().st_size}\n".encode())
    return described.hexdigest()[:12]


def fingerprint_of(command: Sequence[str]) -> str:
    """Of the words of a command."""
    return hashlib.sha256("\0".join(command).encode()).hexdigest()[:8]


def _may_set_limits() -> bool:
    """Whether criu can save the processes of another user."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _SYS_RESOURCE & 1)
    return False
