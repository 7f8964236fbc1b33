"""Several tasks in one episode: one after the other, one success, saved and repeated like any other."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cairn.data.action import Answer, Finish
from cairn.data.task import Root, Split, Task
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.chain import CHAINS, ChainEnvironment, ChainSession, chain_templates, seed_of, tasks_of
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.testing.memory import MemoryBlobs
from cairn.testing.session_contract import SESSION_CONTRACT, Check

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket, pytest.mark.asyncio(loop_scope="module")]
SHORT = chain_templates()[2]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chains() -> AsyncIterator[ChainEnvironment]:
    limits = PoolLimits(browsers=1, pages_per_browser=3)
    environment = ChainEnvironment(MiniwobEnvironment(blobs=MemoryBlobs(), options=MiniwobOptions(limits=limits)))
    yield environment
    await environment.close()


def task_of(number: int, index: int = 0) -> Task:
    return Task(template=chain_templates()[number], split=Split.TRAIN, index=index)


async def steps_to_the_end(session: ChainSession, *, most: int = 60) -> int:
    for number in range(1, most):
        await session.observe()
        action = await session.expert_action()
        assert action is not None
        if (await session.act(action)).done:
            return number
    raise AssertionError


@pytest.mark.parametrize("check", SESSION_CONTRACT, ids=lambda c: c.__name__)
async def test_the_session_contract(chains: ChainEnvironment, check: Check) -> None:
    await check(chains, task_of(2))


@pytest.mark.parametrize("number", range(len(CHAINS)))
async def test_experts_solve_chains_of_twelve_steps_or_so(chains: ChainEnvironment, number: int) -> None:
    session = await chains.open(task_of(number), start=Root())
    goals: set[str] = set()
    steps, done = 0, False
    while not done:
        goals.add((await session.observe()).goal)
        action = await session.expert_action()
        assert action is not None
        done = (await session.act(action)).done
        steps += 1
    assert (await session.evidence()).raw_reward == 1.0
    assert len(goals) == len(CHAINS[number])
    assert 6 <= steps <= chain_templates()[number].max_turns
    await session.close()


async def test_a_part_that_fails_ends_the_episode_without_success(chains: ChainEnvironment) -> None:
    session = await chains.open(task_of(2), start=Root())
    await session.observe()
    assert (await session.act(Finish())).done
    assert (await session.evidence()).raw_reward <= 0.0
    await session.close()
    again = await chains.open(task_of(2), start=Root())
    await again.act(Answer("no"))
    assert (await again.evidence()).raw_reward <= 0.0
    await again.close()


async def test_an_unfinished_chain_is_no_success(chains: ChainEnvironment) -> None:
    session = await chains.open(task_of(2), start=Root())
    first = (await session.observe()).goal
    while (await session.observe()).goal == first:
        action = await session.expert_action()
        assert action is not None
        await session.act(action)
    evidence = await session.evidence()
    assert (evidence.done, evidence.raw_reward) == (False, 0.0)
    await session.close()


async def test_an_exported_chain_is_repeated_into_the_same_part(chains: ChainEnvironment) -> None:
    session = await chains.open(task_of(1, 3), start=Root())
    for _ in range(5):
        await session.observe()
        action = await session.expert_action()
        assert action is not None
        assert not (await session.act(action)).done
    before = await session.observe()
    again = await chains.import_state(task_of(1, 3), await session.export_state())
    after = await again.observe()
    assert (after.digest, after.goal) == (before.digest, before.goal)
    assert await steps_to_the_end(again) > 0
    assert (await again.evidence()).raw_reward == 1.0
    await session.close()
    await again.close()


async def test_the_parts_of_a_chain_have_seeds_of_their_own_in_the_same_split() -> None:
    assert len({seed_of(1_999_999, part) for part in range(4)}) == 4
    assert all(1_000_000 <= seed_of(1_999_999, part) < 2_000_000 for part in range(4))
    assert tasks_of("a+b") == ("a", "b")
