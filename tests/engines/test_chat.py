"""Models behind a URL: what is asked, what is tried again, and how they play."""

import json
from collections.abc import Callable, Sequence

import httpx
import pytest

from cairn.codecs.thinking import Message
from cairn.data.action import Click
from cairn.data.ids import ElementId
from cairn.data.task import Root, Split, Task
from cairn.engines import chat
from cairn.engines.chat import ChatEndpoint, ChatExpert
from cairn.errors import EngineError
from cairn.testing.scripted import COUNT, ScriptedEnvironment

ASKED = (Message(role="user", content="now?"),)


def answer(text: str) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": text}}]})


def endpoint(reply: Callable[[httpx.Request], httpx.Response]) -> ChatEndpoint:
    return ChatEndpoint(
        url="http://host.invalid/v1/", model="m", key_variable="CAIRN_TEST_KEY", transport=httpx.MockTransport(reply)
    )


def in_turn(replies: Sequence[httpx.Response | Exception]) -> Callable[[httpx.Request], httpx.Response]:
    left = list(replies)

    def reply(request: httpx.Request) -> httpx.Response:
        del request
        now = left.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    return reply


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_PAUSES", (0.0, 0.0))


async def test_the_question_carries_model_messages_and_the_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAIRN_TEST_KEY", "secret")
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer("yes")

    there = endpoint(reply)
    assert await there.say(ASKED) == "yes"
    assert str(seen[0].url) == "http://host.invalid/v1/chat/completions"
    assert seen[0].headers["Authorization"] == "Bearer secret"
    told = json.loads(seen[0].content)
    assert told["model"] == "m"
    assert told["messages"] == [{"role": "user", "content": "now?"}]
    assert "secret" not in repr(there)


@pytest.mark.parametrize("failure", [httpx.Response(503), httpx.Response(429), httpx.ConnectError("refused")])
async def test_what_may_pass_is_tried_again_twice(failure: httpx.Response | Exception) -> None:
    assert await endpoint(in_turn([failure, failure, answer("yes")])).say(ASKED) == "yes"
    with pytest.raises(EngineError, match=r"host\.invalid"):
        await endpoint(in_turn([failure, failure, failure, answer("yes")])).say(ASKED)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (httpx.Response(401, text="who are you"), "refuses with status 401: who are you"),
        (httpx.Response(200, text="<html>"), "not as a chat endpoint does: <html>"),
        (httpx.Response(200, json={"choices": []}), "not as a chat endpoint does"),
    ],
)
async def test_what_will_not_pass_is_said_at_once(reply: httpx.Response, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        await endpoint(in_turn([reply])).say(ASKED)


async def test_it_is_shown_the_page_and_its_action_is_done() -> None:
    shown: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        shown.append(json.loads(request.content)["messages"][1]["content"])
        return answer("<think>one more</think><action>click + [1]</action>")

    environment = ScriptedEnvironment(templates=(COUNT,))
    session = await environment.open(Task(template=COUNT, split=Split.TRAIN, index=0), start=Root())
    expert = ChatExpert(endpoint=endpoint(reply))
    assert await expert(session, await session.observe(), []) == Click(ElementId(1))
    assert shown[0].startswith(f"Goal: {session.goal}\n+ [1] button")
    await environment.close()


async def test_an_answer_without_an_action_is_none() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    session = await environment.open(Task(template=COUNT, split=Split.TRAIN, index=0), start=Root())
    expert = ChatExpert(endpoint=endpoint(in_turn([answer("I would rather not.")])))
    assert await expert(session, await session.observe(), []) is None
    await environment.close()
