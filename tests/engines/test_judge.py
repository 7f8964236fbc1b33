"""Models as judges: what they are asked, what is read from them, and what becomes of those that fail."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cairn.data.trajectory import Outcome
from cairn.engines import chat
from cairn.engines.chat import ChatEndpoint
from cairn.engines.judge import ChatJudge, load_prompt, read_opinion
from cairn.errors import ConfigError, VerifierError
from cairn.ports import Asked, Opinion, Question
from cairn.rewards.composed import Composed, Part
from cairn.rewards.judged import Judged
from cairn.rollout.group import Judging
from rollout.stage import Company, plan_for

ASKED = Question(about=Asked.SUB_GOAL, goal="buy {wanted}", said="I press {goal}", wanted="press buy")
TASK, SUB_GOAL = load_prompt(Asked.TASK), load_prompt(Asked.SUB_GOAL)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_PAUSES", (0.0, 0.0))


def judge_of(reply: Callable[[httpx.Request], httpx.Response]) -> ChatJudge:
    endpoint = ChatEndpoint(url="http://host.invalid/v1", model="m", transport=httpx.MockTransport(reply))
    return ChatJudge(endpoint=endpoint, task=TASK, sub_goal=SUB_GOAL)


def saying(*texts: str) -> tuple[ChatJudge, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        text = texts[min(len(seen), len(texts) - 1)]
        seen.append(request)
        return httpx.Response(200, json={"choices": [{"message": {"content": text}}]})

    return judge_of(reply), seen


# ── prompts ───────────────────────────────────────────────────────────────────


def test_places_inside_what_is_filled_in_stay_as_they_are() -> None:
    system, user = SUB_GOAL.asked(ASKED)
    assert (system.role, user.role) == ("system", "user")
    assert "Goal of the whole task: buy {wanted}\n" in user.content
    assert "Expected next step: press buy\n" in user.content
    assert "<thought>\nI press {goal}\n</thought>" in user.content


async def test_episodes_and_thoughts_have_prompts_of_their_own() -> None:
    judge, seen = saying('{"score": 10}')
    await judge.judge(ASKED)
    await judge.judge(replace(ASKED, about=Asked.TASK))
    systems = [json.loads(request.content)["messages"][0]["content"] for request in seen]
    assert systems == [SUB_GOAL.system.strip(), TASK.system.strip()]


def test_another_prompt_or_model_is_another_judge(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('best = 5\nsystem = "Judge."\nuser = "{said}"\n', encoding="utf-8")
    judge, _ = saying("")
    other = replace(judge, endpoint=replace(judge.endpoint, model="n"))
    assert len({judge.name, other.name, replace(judge, task=load_prompt(Asked.TASK, own)).name}) == 3
    assert judge.name == replace(judge).name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("best = = 1", "is not TOML"),
        ('best = 10\nsystem = "a"\n', "user: field required"),
        ('best = 0\nsystem = "a"\nuser = "{said}"', "best: input should be greater than 0"),
        ('best = 10\nsystem = "a"\nuser = "{said}"\nx = 1', "x: extra inputs"),
        ('best = 10\nsystem = "a"\nuser = "{sed}"', "no place {said}"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "prompt.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_prompt(Asked.TASK, path)


# ── replies ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "opinion"),
    [
        ('{"reason": "yes", "score": 7}', Opinion(score=0.7, reason="yes")),
        ('Well: ```json\n{"score": 10}\n```', Opinion(score=1.0)),
        ('{"score": 2} no, rather {"score": 3}', Opinion(score=0.3)),
        ('{"score": 0, "reason": "none"}', Opinion(score=0.0, reason="none")),
        ('{"score": 11}', None),
        ('{"score": -1}', None),
        ('{"score": NaN}', None),
        ('{"score": true}', None),
        ('{"score": false}', None),
        ('{"mark": 3}', None),
        ("7/10", None),
        ("", None),
    ],
)
def test_a_mark_is_a_score_in_json_within_its_bounds(said: str, opinion: Opinion | None) -> None:
    assert read_opinion(said, best=10) == opinion


async def test_what_cannot_be_read_is_asked_for_once_more() -> None:
    judge, seen = saying("I like it", '{"score": 5}')
    assert (await judge.judge(ASKED)).score == 0.5
    assert len(seen) == 2


async def test_a_judge_that_gives_no_mark_fails_and_gives_no_zero() -> None:
    judge, seen = saying("I like it")
    with pytest.raises(VerifierError, match="gave no mark from 0 to 10: 'I like it'"):
        await judge.judge(ASKED)
    assert len(seen) == 2


@pytest.mark.parametrize(("status", "tries"), [(503, 3), (401, 1)])
async def test_an_endpoint_that_refuses_is_the_judges_failure(status: int, tries: int) -> None:
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status)

    with pytest.raises(VerifierError, match=rf"the judge m: .*status {status}"):
        await judge_of(reply).judge(ASKED)
    assert len(seen) == tries


# ── over a socket ─────────────────────────────────────────────────────────────


@asynccontextmanager
async def serving(answer: str, *, delay: float = 0.0) -> AsyncGenerator[str]:
    """A server that says `answer`, byte for byte, after `delay` seconds; the URL to ask."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        try:
            await asyncio.sleep(delay)
            body = answer.encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
            await writer.drain()
        except ConnectionError:
            pass  # who asked has not waited
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        port: int = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.close()


def live_judge(url: str, *, seconds: float = 10.0) -> ChatJudge:
    endpoint = ChatEndpoint(url=url, model="m", seconds=seconds)
    return ChatJudge(endpoint=endpoint, task=TASK, sub_goal=SUB_GOAL)


def reply_of(text: str) -> str:
    return json.dumps({"choices": [{"message": {"content": text}}]})


@pytest.mark.enable_socket
async def test_a_server_that_answers_is_heard() -> None:
    async with serving(reply_of('{"score": 9, "reason": "nearly"}')) as url:
        assert await live_judge(url).judge(ASKED) == Opinion(score=0.9, reason="nearly")


@pytest.mark.enable_socket
async def test_a_server_that_is_slow_wrong_or_down_loses_the_verdict_and_not_the_trajectory() -> None:
    async with serving(reply_of('{"score": 9}'), delay=30.0) as slow, serving("<html>") as wrong:
        judges = [live_judge(slow, seconds=0.2), live_judge(wrong), live_judge("http://127.0.0.1:9/v1", seconds=2.0)]
        for judge, said in zip(judges, ("ReadTimeout", "not as a chat endpoint", "ConnectError"), strict=True):
            company = Company()
            composed = Composed(parts=[Part(name="judge", weight=1.0, measure=Judged(judge=judge))])
            judging = Judging(reward=company.reward, composition=composed, retries=1)
            group = await replace(company.groups, judging=judging).run(plan_for(size=1))
            assert group.members == ()
            assert [lost.outcome for lost in group.lost] == [Outcome.VERIFIER_ERROR]
            assert said in group.lost[0].reason
