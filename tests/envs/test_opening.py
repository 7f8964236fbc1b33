import asyncio

import pytest

from cairn.data.task import Root, Split, Task
from cairn.envs.opening import once_ready
from cairn.errors import SessionError
from cairn.testing.scripted import COUNT, ScriptedEnvironment

TASK = Task(template=COUNT, split=Split.TRAIN, index=0)


async def test_a_session_that_cannot_begin_is_closed() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))

    async def fails() -> None:
        raise SessionError("gone")

    with pytest.raises(SessionError, match="gone"):
        await once_ready(await environment.open(TASK, start=Root()), fails())
    assert environment.live == 0


async def test_so_is_one_that_is_not_waited_for() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    session = await environment.open(TASK, start=Root())
    opening = asyncio.ensure_future(once_ready(session, asyncio.Event().wait()))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert environment.live == 0


async def test_one_that_has_begun_is_handed_out() -> None:
    environment = ScriptedEnvironment(templates=(COUNT,))
    session = await environment.open(TASK, start=Root())
    assert await once_ready(session, asyncio.sleep(0)) is session
    assert environment.live == 1
    await environment.close()
