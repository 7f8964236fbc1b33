"""Demonstrations by a model behind a URL, a small server of the test's own."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cairn import open_run
from cairn.app.run import collect_demonstrations
from cairn.config import recipe as configuration
from cairn.data.trajectory import Outcome
from cairn.errors import ConfigError, SessionError
from scripted_recipe import SCRIPTED

pytestmark = pytest.mark.enable_socket

RECIPE = (
    SCRIPTED
    + """
[demonstrations]
per_template = 3
url = "{url}"
model = "tiny"
[imitation]
updates = 1
[reinforcement]
updates = 0
"""
)


@asynccontextmanager
async def serving(text: str, *, status: str = "200 OK") -> AsyncGenerator[str]:
    """The address of a chat endpoint that always says the same."""
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def shown(tmp_path: Path, url: str) -> list[Outcome]:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(url=url))
    await collect_demonstrations(configuration.load(recipe), tmp_path / "run")
    return [member.outcome for group in open_run(tmp_path / "run") for member in group.members]


async def test_a_model_behind_a_url_shows_the_training_tasks(tmp_path: Path) -> None:
    async with serving("<think>more</think><action>click + [1]</action>") as url:
        assert await shown(tmp_path, url) == [Outcome.SUCCESS] * 3
    turns = [turn for group in open_run(tmp_path / "run") for turn in group.members[0].trajectory.turns]
    assert {int(version) for turn in turns for version in turn.completion.versions} == {-1}  # no policy's


async def test_what_the_model_cannot_do_is_no_lesson(tmp_path: Path) -> None:
    async with serving("<action>click - [2]</action>") as url:
        with pytest.raises(ConfigError, match="no expert solved anything"):
            await shown(tmp_path, url)


async def test_an_endpoint_that_refuses_is_an_outside_failure(tmp_path: Path) -> None:
    async with serving("", status="404 Not Found") as url:
        with pytest.raises(SessionError, match="refuses with status 404"):
            await shown(tmp_path, url)


@pytest.mark.parametrize(
    ("url", "model", "said"),
    [("http://127.0.0.1:1/v1", "", "needs demonstrations.model"), ("localhost/v1", "tiny", "must begin with http")],
)
def test_an_endpoint_that_cannot_be_asked_is_said_at_once(tmp_path: Path, url: str, model: str, said: str) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.format(url=url).replace('"tiny"', f'"{model}"'))
    with pytest.raises(ConfigError, match=f"demonstrations.url {said}"):
        configuration.load(tmp_path / "recipe.toml")
