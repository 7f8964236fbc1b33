"""The DevTools protocol over a pair of pipes or a socket: JSON messages that end in a zero byte."""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, cast

from cairn.errors import SessionError, SessionTimeoutError

Reply = Mapping[str, Any]
Handler = Callable[[Reply], None]


class Connection(asyncio.Protocol):
    """One browser's control channel, shared by its pages. Its end fails everything that still waits."""

    def __init__(self, *, describe_end: Callable[[], str]) -> None:
        self._describe_end = describe_end
        self._buffer = bytearray()
        self._scanned = 0
        self._next = 0
        self._waiting: dict[int, tuple[str, str | None, asyncio.Future[Reply]]] = {}  # by number: what, which page
        self._lost: dict[str | None, str] = {}  # pages that will never answer, and why
        self._handlers: dict[tuple[str | None, str], Handler] = {}
        self._reader: asyncio.BaseTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._detached: asyncio.Future[None] | None = None  # pending while the other side is being left
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves to the reason once the browser can no longer be reached."""

    @classmethod
    async def open(cls, *, to_browser: int, from_browser: int, describe_end: Callable[[], str]) -> "Connection":
        """Take over both descriptors."""
        loop = asyncio.get_running_loop()
        connection = cls(describe_end=describe_end)
        reader, _ = await loop.connect_read_pipe(lambda: connection, os.fdopen(from_browser, "rb", buffering=0))
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(to_browser, "wb", buffering=0))
        connection._reader, connection._writer = reader, writer
        return connection

    @classmethod
    async def over(cls, client: socket.socket, *, describe_end: Callable[[], str]) -> "Connection":
        """Take over a connected socket."""
        connection = cls(describe_end=describe_end)
        await connection.attach(client)
        return connection

    async def attach(self, client: socket.socket) -> None:
        """Speak through this socket from now on: to the browser as it was when `detach` left it."""
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=client)
        self._reader = self._writer = transport
        self._detached = None

    async def detach(self, *, seconds: float = 5.0) -> None:
        """Leave the browser, which stays as it is, with nothing said or heard by halves. No command may be waiting."""
        if self._waiting or self.ended.done() or self._writer is None:
            raise SessionError("the browser cannot be left: " + (self._reason() if self.ended.done() else "it is busy"))
        self._detached = asyncio.get_running_loop().create_future()
        self._writer.write_eof()
        self._writer = None
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._detached)
        except TimeoutError as error:
            raise SessionTimeoutError(f"waited {seconds:g} s for the browser's box to let go") from error

    # ── asyncio.Protocol ──────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        """Split the stream into messages."""
        self._buffer += data
        end = self._buffer.find(0, self._scanned)
        while end >= 0:
            message = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._receive(json.loads(message))
            end = self._buffer.find(0)
        self._scanned = len(self._buffer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whatever still waits: the browser is gone."""
        if self._detached is None or self._buffer or exc is not None:
            self._finish(self._describe_end())
        if self._detached is not None and not self._detached.done():
            self._detached.set_result(None)

    # ── calls ─────────────────────────────────────────────────────────────────

    def send(
        self, method: str, parameters: Reply | None = None, *, session: str | None = None
    ) -> asyncio.Future[Reply]:
        """Send a command now; the future fails with a `SessionError` when the browser refuses it or dies."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        if self.ended.done() or self._writer is None or session in self._lost:
            reason = self._lost.get(session) or self._reason()
            future.set_exception(SessionError(f"{method}: {reason}"))
            return future
        self._next += 1
        message: dict[str, object] = {"id": self._next, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        self._waiting[self._next] = (method, session, future)
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\0")
        return future

    async def call(
        self, method: str, parameters: Reply | None = None, *, session: str | None = None, seconds: float = 20.0
    ) -> Reply:
        """Send a command and wait for its answer, at most so many `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self.send(method, parameters, session=session)
        except TimeoutError as error:
            raise SessionTimeoutError(f"the browser did not answer {method} within {seconds:g} s") from error

    def subscribe(self, session: str | None, method: str, handler: Handler) -> None:
        """Call `handler` with the parameters of each such event."""
        self._handlers[session, method] = handler

    def lose(self, session: str, reason: str) -> None:
        """Fail all that a page still owes an answer to, now and from now on: it has none any more."""
        self._lost[session] = reason
        for number, (method, waiting, future) in tuple(self._waiting.items()):
            if waiting == session:
                del self._waiting[number]
                if not future.done():
                    future.set_exception(SessionError(f"{method}: {reason}"))

    def unsubscribe(self, session: str) -> None:
        """Forget every handler of a page."""
        for key in [key for key in self._handlers if key[0] == session]:
            del self._handlers[key]

    def close(self) -> None:
        """Give both pipes back. Idempotent."""
        self._finish("the browser was closed")
        for transport in (self._reader, self._writer):
            if transport is not None:
                transport.close()

    # ── inside ────────────────────────────────────────────────────────────────

    def _receive(self, message: Reply) -> None:
        number = cast("int | None", message.get("id"))
        if number is None:
            handler = self._handlers.get((message.get("sessionId"), message["method"]))
            if handler is not None:
                handler(message.get("params", {}))
            return
        method, _, future = self._waiting.pop(number, ("", None, None))
        if future is None or future.done():
            return
        error = message.get("error")
        if error is None:
            future.set_result(message["result"])
        else:
            future.set_exception(SessionError(f"{method}: {error.get('message', error)}"))

    def _reason(self) -> str:
        return self.ended.result() if self.ended.done() else "the browser is not connected"

    def _finish(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
        waiting, self._waiting = self._waiting, {}
        for method, _, future in waiting.values():
            if not future.done():
                future.set_exception(SessionError(f"{method}: {reason}"))


def _retrieve(future: asyncio.Future[Reply]) -> None:
    """Mark a failure as seen: a command sent ahead may have nobody left to wait for it."""
    if not future.cancelled():
        future.exception()
