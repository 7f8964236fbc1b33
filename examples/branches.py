"""One state, four sessions: each goes on from there by itself, and does something else.

python examples/branches.py
"""

import asyncio
from pathlib import Path

from cairn.app.saved_states import saved_environment, task_named
from cairn.data.action import Click
from cairn.data.task import FromSnapshot, Root


async def branches(folder: Path, *, store: str = "auto") -> list[str]:
    async with saved_environment("miniwob", folder=folder, store=store, places=5) as environment:
        task = task_named(environment, "click-checkboxes-large")
        session = await environment.open(task, start=Root())
        await session.act(Click((await session.observe()).elements[0].id))
        kept = await session.snapshot()
        states: list[str] = []
        for number in range(1, 5):
            branch = await environment.open(task, start=FromSnapshot(id=kept))
            element = (await branch.observe()).elements[number]
            await branch.act(Click(element.id))
            states.append(f"{element.label!r} clicked: state {(await branch.observe()).digest[:8]}")
        return states


if __name__ == "__main__":
    print(*asyncio.run(branches(Path("snapshots"))), sep="\n")
