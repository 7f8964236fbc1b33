"""What a page inside a container can reach, with everything off that Cairn tells the browser to block."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cairn.envs.chromium.browser import Browser, contained_command
from cairn.envs.chromium.discovery import BrowserBinary, Channel
from cairn.envs.chromium.page import Page
from cairn.errors import SessionError
from cairn.snapshots.containers.cgroups import members, unlimited_here
from cairn.snapshots.containers.container import Container
from cairn.snapshots.containers.yard import PREFIX, Limits, Yard
from snapshots.confined import Listeners, yard_of

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket, pytest.mark.timeout(300)]
MEGABYTE = 1 << 20
BINARY = BrowserBinary(path=Path("/usr/lib/chromium/chromium-headless-shell"), channel=Channel.SHELL)
COMMAND = [flag for flag in contained_command(BINARY) if "host-resolver-rules" not in flag]
SMALL = Limits(disk=64 * MEGABYTE, memory=400 * MEGABYTE, processes=160)


@pytest.fixture
def yard() -> Iterator[Yard]:
    with yard_of(COMMAND, limits=SMALL) as made:
        yield made


@asynccontextmanager
async def browser_in(yard: Yard) -> AsyncGenerator[tuple[Browser, Container]]:
    """A browser in a container."""
    container = await yard.started()
    try:
        client = await container.connect()
        browser = await Browser.joined(binary=BINARY, holder=container, client=client, describe_end=lambda: "it ended")
        yield browser, container
        await browser.end()
    finally:
        await container.end()


@asynccontextmanager
async def page_in(yard: Yard) -> AsyncGenerator[tuple[Page, Container]]:
    """A page of the container's own site, which may ask for whatever it likes."""
    async with browser_in(yard) as (browser, container):
        page = await browser.new_page(width=300, height=300)
        await page.send("Network.setBlockedURLs", {"urls": []})
        await page.navigate("http://127.0.0.1:8000/hostile.py")
        yield page, container


ATTEMPTS = """async urls => {
  const reached = [];
  const attempts = urls.flatMap(url => [
    fetch(url, {mode: "no-cors", signal: AbortSignal.timeout(4000)}).then(() => reached.push(url)),
    new Promise((done, fail) => {
      const socket = new WebSocket(url.replace("http", "ws"));
      socket.onopen = () => done(reached.push(url));
      socket.onerror = socket.onclose = fail;
      setTimeout(fail, 4000);
    }),
  ]);
  await Promise.allSettled(attempts);
  reached.push((await fetch("/hostile.py")).status);
  return reached;
}"""


async def test_a_page_reaches_no_server_of_the_host(yard: Yard) -> None:
    listeners = Listeners()
    urls = [f"http://{f'[{address}]' if ':' in address else address}:{port}/" for address, port in listeners.places]
    try:
        async with page_in(yard) as (page, _):
            reached = await page.evaluate(f"({ATTEMPTS})({urls})")
    finally:
        listeners.close()
    assert urls
    assert reached == [200]
    assert listeners.visits == 0


async def test_a_page_reads_no_file_of_the_host(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_TEST_SECRET", "cairn-test-secret")
    (tmp_path / "secret").write_text("cairn-test-secret")
    shown: dict[str, str] = {}
    own = ["/etc/debian_version", "/etc/shadow", "/proc/1/environ"]
    places = [str(tmp_path / "secret"), str(tmp_path), str(PREFIX), *own]
    refused: list[str] = []
    async with page_in(yard) as (page, _):
        for place in places:
            try:
                await page.navigate(f"file://{place}")
                shown[place] = str(await page.evaluate("document.documentElement.innerText"))
            except SessionError as error:
                refused.append(str(error).rpartition("net::")[2])
    assert not [place for place, text in shown.items() if "cairn-test-secret" in text]
    assert refused == ["ERR_FILE_NOT_FOUND"] * (len(places) - len(shown))
    assert set(shown) <= set(own)
    rootfs = PREFIX / "rootfs" / "root" / "etc"
    for place in set(own) & set(shown) - {"/proc/1/environ"}:  # what can be read is the container's own
        assert shown[place].split() == (rootfs / Path(place).name).read_text().split()
    assert "/etc/debian_version" in shown


async def test_a_page_that_takes_all_memory_is_a_session_error_and_others_live_on(yard: Yard) -> None:
    if "memory" in unlimited_here():
        pytest.skip("this host has no control group that limits memory")
    async with page_in(yard) as (neighbour, _):
        with pytest.raises(SessionError, match=r"the page crashed|ended"):
            async with page_in(yard) as (page, _):
                await page.evaluate(
                    "const kept = []; for (;;) { kept.push(new Uint8Array(1 << 24).fill(7)); } kept.length", seconds=90
                )
        assert await neighbour.evaluate("1 + 1") == 2


async def test_a_page_that_starts_workers_without_end_stays_within_the_limit(yard: Yard) -> None:
    if "pids" in unlimited_here():
        pytest.skip("this host has no control group that limits processes")
    async with page_in(yard) as (neighbour, _):
        try:
            async with page_in(yard) as (page, container):
                await page.evaluate(
                    """(async () => {
                      const code = URL.createObjectURL(new Blob(["setInterval(() => 0, 10); postMessage(1)"]));
                      const workers = [];
                      for (let i = 0; i < 200; i++) workers.push(new Worker(code));
                      await new Promise(done => setTimeout(done, 3000));
                      return workers.length;
                    })()""",
                    seconds=15,
                )
                assert threads_of(container) <= SMALL.processes
        except SessionError:
            pass  # the browser may give up
        assert await neighbour.evaluate("1 + 1") == 2


def threads_of(container: Container) -> int:
    pids = [pid for folder in container._group.folders[:1] for pid in members(folder)]
    return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids)
