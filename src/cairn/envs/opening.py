"""What every environment does when it opens a session."""

from collections.abc import Awaitable
from typing import TypeVar

from cairn.data.task import Root, Start
from cairn.errors import ConfigError
from cairn.ports import Session

S = TypeVar("S", bound=Session)


def require_root(environment: str, start: Start) -> None:
    """Raise a `ConfigError` where a session is to start elsewhere, in an environment that cannot save any by itself."""
    if not isinstance(start, Root):
        raise ConfigError(f"{environment} opens sessions at a task's root only, not at a {type(start).__name__}")


async def once_ready(session: S, beginning: Awaitable[object]) -> S:
    """The session, after `beginning`; where that fails, the session is closed."""
    try:
        await beginning
    except BaseException:
        await session.close()
        raise
    return session
