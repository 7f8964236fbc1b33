"""Experts play on in sessions that can be saved."""

from cairn.ports import ExpertSession
from cairn.snapshots.sessions import SavableSession

MOST_STEPS = 60


async def expert_step(session: SavableSession) -> bool:
    """One action of the expert in a session that was looked at; whether the episode is over."""
    assert isinstance(session, ExpertSession)
    action = await session.expert_action()
    assert action is not None
    return (await session.act(action)).done


async def finished(session: SavableSession) -> float:
    """The reward once the expert has played on to the end. The session is closed."""
    for _ in range(MOST_STEPS):
        await session.observe()
        if await expert_step(session):
            break
    reward = (await session.evidence()).raw_reward
    await session.close()
    return reward
