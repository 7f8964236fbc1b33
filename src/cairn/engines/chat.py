"""A model behind an OpenAI-compatible URL, and how it plays in place of a scripted expert."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from cairn.codecs.thinking import Message, conversation, said_action
from cairn.data.action import Action, Invalid
from cairn.data.observation import Observation
from cairn.errors import EngineError
from cairn.ports import Past, Session

if TYPE_CHECKING:
    import httpx

_PAUSES = (0.5, 2.0)  # seconds before it is asked again
_BUSY = 429
_BROKEN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """Asks for one answer at a time. Every failure is an `EngineError`; what may pass is tried again, twice at most.

    The key is read from the environment when it is needed, and stands in no recipe and no run.
    """

    url: str  # up to and with /v1
    model: str
    key_variable: str = "OPENAI_API_KEY"
    seconds: float = 60.0  # for one answer
    max_tokens: int = 512
    transport: "httpx.AsyncBaseTransport | None" = field(default=None, repr=False)  # in place of the network

    async def say(self, messages: Sequence[Message]) -> str:
        """The likeliest answer."""
        for pause in (*_PAUSES, None):
            try:
                return await self._asked(messages)
            except _PassingError as error:
                if pause is None:
                    raise EngineError(str(error)) from error
                await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _asked(self, messages: Sequence[Message]) -> str:
        import httpx

        key = os.environ.get(self.key_variable)
        request = {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "temperature": 0.0,
            "max_tokens": self.max_tokens,
        }
        try:
            async with httpx.AsyncClient(timeout=self.seconds, transport=self.transport) as client:
                reply = await client.post(
                    f"{self.url.rstrip('/')}/chat/completions",
                    json=request,
                    headers={"Authorization": f"Bearer {key}"} if key else {},
                )
        except httpx.InvalidURL as error:
            raise EngineError(f"{self.url} is no address: {error}") from error
        except httpx.TransportError as error:
            raise _PassingError(f"{self.url} does not answer: {type(error).__name__} {error}".rstrip()) from error
        if reply.status_code == _BUSY or reply.status_code >= _BROKEN:
            raise _PassingError(f"{self.url} answers with status {reply.status_code}")
        if not reply.is_success:
            raise EngineError(f"{self.url} refuses with status {reply.status_code}: {reply.text[:200]}")
        try:
            return _Reply.model_validate_json(reply.content).choices[0].message.content
        except (ValidationError, IndexError) as error:
            raise EngineError(f"{self.url} answers, but not as a chat endpoint does: {reply.text[:200]}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatExpert:
    """Shows the page as text and does what the model says; no action where it says none. Implements `Guide`."""

    endpoint: ChatEndpoint

    async def __call__(self, session: Session, seen: Observation, turns: Sequence[Past]) -> Action | None:
        said = await self.endpoint.say(conversation(seen.instruction(session.goal), turns, seen))
        action = said_action(said)
        return None if isinstance(action, Invalid) else action


class _PassingError(Exception):
    """A failure that may be over in a moment."""


class _Message(BaseModel):
    content: str


class _Choice(BaseModel):
    message: _Message


class _Reply(BaseModel):
    choices: list[_Choice]
