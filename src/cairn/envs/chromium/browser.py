"""A browser of one's own: started, watched, measured, ended."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from cairn.envs.chromium.connection import Connection
from cairn.envs.chromium.discovery import BrowserBinary, Channel
from cairn.envs.chromium.frames import DrawnFreely, DrawnOnCommand, FrameClock, Frames, bounded
from cairn.envs.chromium.page import Page, PageState
from cairn.envs.chromium.process import Supervised, spawn
from cairn.errors import SessionError, SessionTimeoutError

_START_SECONDS = 30.0
_CLOSE_SECONDS = 3.0
_POLL_SECONDS = 0.01
_SHARED_MEMORY_NEEDED = 512 << 20
# With LCD text, lists do not scroll in the compositor, and a wheel over one then blocks commanded frames for good.
_FLAGS = (
    "--remote-debugging-pipe", "--user-data-dir={scratch}/profile", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--mute-audio", "--no-default-browser-check", "--disable-extensions", "--disable-default-apps",
    "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
    "--disable-background-timer-throttling", "--disable-ipc-flooding-protection", "--disable-smooth-scrolling",
    "--force-color-profile=srgb", "--disable-lcd-text", "--disable-partial-raster",
    "--force-device-scale-factor=1", "--font-render-hinting=none",
    "--disable-quic", "--disable-breakpad", "--disable-crash-reporter", "--disable-domain-reliability",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--lang=en-US", "--password-store=basic",
    # scripts parsed while they stream in miss the compiled copy that the last load of the same page left behind
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,AcceptCHFrame,ScriptStreaming,"
    "ScriptStreamingForNonHTTP",
)  # fmt: skip
_ON_COMMAND = (
    "--enable-begin-frame-control", "--run-all-compositor-stages-before-draw", "--disable-threaded-animation",
    "--disable-threaded-scrolling", "--disable-checker-imaging", "--disable-new-content-rendering-timeout",
)  # fmt: skip
# Of several flags --disable-features the last alone counts
_FEW_PROCESSES = (
    "--no-zygote", "--in-process-gpu", "--enable-features=NetworkServiceInProcess2",
    "--disable-features=StorageServiceOutOfProcess,Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,"
    "AcceptCHFrame,ScriptStreaming,ScriptStreamingForNonHTTP,WebRtcHWDecoding,AudioServiceOutOfProcess",
)  # fmt: skip
_FREELY = ("--headless=new", "--disable-gpu-vsync", "--disable-frame-rate-limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a page in the real world has: time goes by, servers on this machine answer, downloads are kept."""

    downloads: Path  # the folder, as the browser sees it


LOOPBACK_FLAGS = ("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",)
"""Start a browser with these for pages that live `Outside`."""


class Holder(Protocol):
    """What a browser's processes live in: a supervised process group, or a container."""

    @property
    def pid(self) -> int:
        """Of the process that all others descend from."""
        ...

    @property
    def scratch(self) -> Path:
        """The directory that lives as long as they do."""
        ...

    async def end(self) -> None:
        """Kill them, and wait until nothing is left of them and their files. Idempotent."""
        ...


class Browser:
    """A running browser. What fails is a `SessionError`; its death fails all that waits on it at once."""

    def __init__(self, *, binary: BrowserBinary, process: Holder, connection: Connection) -> None:
        self._binary = binary
        self._process = process
        self._connection = connection
        self._clock = FrameClock()

    @classmethod
    async def start(cls, *, binary: BrowserBinary, root: Path, flags: Iterable[str] = ()) -> "Browser":
        """Start a browser whose scratch data lies below `root`, and wait until it answers."""
        process = spawn(_command(binary, flags), root=root, environment=_environment())
        try:
            connection = await Connection.open(
                to_browser=process.to_program,
                from_browser=process.from_program,
                describe_end=lambda: _described_end(binary.path, process),
            )
            browser = cls(binary=binary, process=process, connection=connection)
            await connection.call("Browser.getVersion", seconds=_START_SECONDS)
        except BaseException:
            await process.end()
            raise
        return browser

    @classmethod
    async def joined(
        cls, *, binary: BrowserBinary, holder: Holder, client: socket.socket, describe_end: Callable[[], str]
    ) -> "Browser":
        """A browser that runs already and speaks through a socket. On failure the holder ends."""
        try:
            connection = await Connection.over(client, describe_end=describe_end)
            browser = cls(binary=binary, process=holder, connection=connection)
            await connection.call("Browser.getVersion", seconds=_START_SECONDS)
        except BaseException:
            await holder.end()
            raise
        return browser

    async def detach(self) -> None:
        """Leave it as it is; no command may be under way. `attach` comes back."""
        await self._connection.detach()

    async def attach(self, client: socket.socket) -> None:
        """Come back to the same browser."""
        await self._connection.attach(client)

    @property
    def ended(self) -> asyncio.Future[str]:
        """Resolves to the reason once the browser is gone."""
        return self._connection.ended

    @property
    def pid(self) -> int:
        """The supervisor's process id, which is also that of the process group."""
        return self._process.pid

    @property
    def scratch(self) -> Path:
        """The directory that lives as long as the browser."""
        return self._process.scratch

    async def version(self) -> str:
        """As in `Chrome/120.0`."""
        return str((await self._connection.call("Browser.getVersion"))["product"])

    async def new_page(self, *, width: int, height: int, script: str = "", outside: Outside | None = None) -> Page:
        """A tab in a cookie jar of its own; `script` runs before any other in each of its documents.

        Unless it lives `outside`, its clock stands still between actions, chance is seeded, and it can load files only.
        """
        on_command = self._binary.channel is Channel.SHELL
        context = (await self._connection.call("Target.createBrowserContext"))["browserContextId"]
        wanted: dict[str, object] = {
            "url": "about:blank",
            "width": width,
            "height": height,
            "browserContextId": context,
        }
        wanted |= {"enableBeginFrameControl": True} if on_command else {"newWindow": True}
        target = (await self._connection.call("Target.createTarget", wanted))["targetId"]
        attached = await self._connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        session = str(attached["sessionId"])
        page = Page(
            connection=self._connection,
            session=session,
            target=target,
            frames=self._frames(session, real=outside is not None),
        )
        await page.prepare(script="\n".join([*_world(frozen=outside is None), script]), alone=outside is None)
        if outside is not None:
            kept = {"behavior": "allow", "browserContextId": context, "downloadPath": str(outside.downloads)}
            await self._connection.call("Browser.setDownloadBehavior", kept)
        if not on_command:
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            await self._connection.call("Emulation.setDeviceMetricsOverride", metrics, session=session)
        return page

    def page_in(self, state: PageState, *, outside: bool = False) -> Page:
        """A tab that this browser has already, as another driver left it; whether it lives `outside`."""
        frames = self._frames(state.session, ticks=state.ticks, real=outside)
        return Page(connection=self._connection, session=state.session, target=state.target, frames=frames, state=state)

    def _frames(self, session: str, *, ticks: float = 0.0, real: bool) -> Frames:
        if self._binary.channel is Channel.SHELL:
            return DrawnOnCommand(
                connection=self._connection, session=session, clock=self._clock, ticks=ticks, real=real
            )
        return DrawnFreely(connection=self._connection, session=session)

    async def close_page(self, page: Page) -> None:
        """Close a tab."""
        self._connection.unsubscribe(page.session)
        await self._connection.call("Target.closeTarget", {"targetId": page.target}, seconds=_CLOSE_SECONDS)

    async def keep_only(self, page: Page) -> None:
        """Close every other tab, such as the one that a browser starts with, and wait for their process to end."""
        targets = (await self._connection.call("Target.getTargets"))["targetInfos"]
        others = [t["targetId"] for t in targets if t["type"] == "page" and t["targetId"] != page.target]
        before = await self._renderers()
        for target in others:
            await self._connection.call("Target.closeTarget", {"targetId": target}, seconds=_CLOSE_SECONDS)
        if others:
            await bounded(self._some_ended(before), seconds=_CLOSE_SECONDS, what="the processes of closed tabs to end")

    async def _some_ended(self, before: frozenset[int]) -> None:
        while True:
            if before - await self._renderers():
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _renderers(self) -> frozenset[int]:
        """Of tabs, and of what else a browser draws."""
        running = (await self._connection.call("SystemInfo.getProcessInfo"))["processInfo"]
        return frozenset(process["id"] for process in running if process["type"] == "renderer")

    def processes(self) -> list[int]:
        """The browser's process ids, supervisor included."""
        children: dict[int, list[int]] = {}
        for pid, fields in _stats():
            children.setdefault(int(fields[1]), []).append(pid)
        found: list[int] = []
        left = [self.pid]
        while left:
            pid = left.pop()
            found.append(pid)
            left += children.get(pid, [])
        return found

    def memory_mb(self) -> float:
        """Proportional set size of all its processes."""
        return sum(_pss_kb(pid) for pid in self.processes()) / 1024

    def cpu_seconds(self) -> float:
        """Processor time that its living processes have used."""
        wanted = set(self.processes())
        ticks = sum(int(fields[11]) + int(fields[12]) for pid, fields in _stats() if pid in wanted)
        return ticks / os.sysconf("SC_CLK_TCK")

    async def end(self) -> None:
        """End it without asking. Idempotent; nothing is left of its processes and files."""
        self._connection.close()
        await self._process.end()

    async def close(self) -> None:
        """Ask it to end, then insist. Idempotent; nothing is left of its processes and files."""
        if not self.ended.done():
            with contextlib.suppress(SessionError, SessionTimeoutError):
                await self._connection.call("Browser.close", seconds=_CLOSE_SECONDS)
        await self.end()


def contained_command(binary: BrowserBinary, *, flags: Iterable[str] = ()) -> list[str]:
    """How a browser is started in a container: in as few processes as it can do with, for there they are saved."""
    usual = [flag.replace("{scratch}", "/tmp") for flag in (*_FLAGS, *_FEW_PROCESSES)]  # noqa: S108 - inside the container
    on_command = _ON_COMMAND if binary.channel is Channel.SHELL else _FREELY
    return [str(binary.path), *usual, *on_command, *flags, "--no-sandbox", "--disable-dev-shm-usage", "about:blank"]


def _world(*, frozen: bool) -> list[str]:
    """The scripts that make a page's world, in order."""
    names = ("clock.js", "world.js") if frozen else ("world.js",)
    return [files("cairn.envs.chromium").joinpath(name).read_text(encoding="utf-8") for name in names]


def _command(binary: BrowserBinary, flags: Iterable[str]) -> list[str]:
    command = [str(binary.path), *_FLAGS, *(_ON_COMMAND if binary.channel is Channel.SHELL else _FREELY), *flags]
    if os.geteuid() == 0:  # Chromium's sandbox refuses to run as root
        command.append("--no-sandbox")
    if not _shared_memory_suffices():
        command.append("--disable-dev-shm-usage")
    return [*command, "about:blank"]


def _environment() -> dict[str, str]:
    """What the browser sees of ours, with a fixed place and language so that pages look alike everywhere."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "USER", "FONTCONFIG_FILE")}
    return {**kept, "TZ": "UTC", "LANG": "C.UTF-8", "LANGUAGE": "en_US"}


def _shared_memory_suffices() -> bool:
    try:
        stat = os.statvfs("/dev/shm")  # noqa: S108 - the mount itself is asked about, nothing is written
    except OSError:
        return False
    return stat.f_bavail * stat.f_frsize >= _SHARED_MEMORY_NEEDED


def _described_end(path: Path, process: Supervised) -> str:
    # the crash reporter complains in any container
    lines = [line for line in process.stderr_tail().splitlines() if "crashpad" not in line]
    last = lines[-1] if lines else ""
    return f"the browser ({path.name}) ended" + (f"; its last words: {last}" if last else "")


def _stats() -> Iterable[tuple[int, list[str]]]:
    """Process id and the fields of /proc/PID/stat from the state on, for each process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                yield int(entry.name), (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _pss_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
