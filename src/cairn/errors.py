"""Every exception that Cairn raises.

CairnError
├── ConfigError            the user's recipe, flag or file is wrong; names the key and the fix
├── SetupError             the machine lacks something (browser, model, permission, space); names it and the fix
├── StoreError             a stored file is damaged; names it
├── InvariantError         our own data broke its contract; always a bug, never caught inside Cairn
├── RankError              another process of a learner that runs as several has ended, or is late
├── CircuitOpenError       too large a share of rollouts failed outside: the run stops rather than train on survivors
└── BoundaryError          something outside failed; recorded on the trajectory, never fatal to its siblings
    ├── SessionError       browser, container, device, snapshot
    │   └── SessionTimeoutError  a bounded wait ran out; says what it waited for
    ├── EngineError        inference
    └── VerifierError      checker or judge
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class CairnError(Exception):
    """Base of every error raised by Cairn."""


class ConfigError(CairnError, ValueError):
    """A recipe, flag or file holds a value that is missing, unknown or out of range."""


class SetupError(CairnError, RuntimeError):
    """The machine lacks something that the run needs."""


class StoreError(CairnError, RuntimeError):
    """A stored file is damaged or of another version."""


class InvariantError(CairnError, AssertionError):
    """A core data type was built from values that break its contract."""


class RankError(CairnError, RuntimeError):
    """Another process of the learner is gone."""


class CircuitOpenError(CairnError, RuntimeError):
    """Too many rollouts in a row were lost to outside failures."""


class BoundaryError(CairnError):
    """Something outside the process failed."""


class SessionError(BoundaryError):
    """A browser, container, device or snapshot operation failed."""


class SessionTimeoutError(SessionError):
    """A bounded wait on a session ran out."""


class EngineError(BoundaryError):
    """The inference engine failed."""


class VerifierError(BoundaryError):
    """A checker or judge failed."""


@asynccontextmanager
async def boundary(kind: type[BoundaryError], what: str) -> AsyncGenerator[None]:
    """Attribute whatever escapes the block to `kind`; an already attributed error passes unchanged."""
    try:
        yield
    except CairnError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}") from error
