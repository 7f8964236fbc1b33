"""The process that saves and opens states while things go wrong, until it is killed itself; see `snapshot_faults`.

python -m cairn.bench.sabotaged FOLDER SEED FIRST LAST      a fault for each number in between
python -m cairn.bench.sabotaged FOLDER SEED                 none: open everything that is kept, and play it to the end
"""

import asyncio
import random
import shutil
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from cairn.bench.sabotage import Fault, Phase, Saboteur, Strike
from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.task import FromSnapshot, Root, Split, Task, Template
from cairn.envs.chromium.pool import PoolLimits
from cairn.envs.miniwob.contained import MiniwobContainers
from cairn.envs.miniwob.environment import MiniwobEnvironment, MiniwobOptions
from cairn.errors import SessionError
from cairn.ports import ExpertSession
from cairn.scratch import UNFINISHED, make_root, mark, mark_in
from cairn.snapshot_ports import SnapshotStore
from cairn.snapshots.contained import ContainerStore
from cairn.snapshots.containers.cgroups import marked_groups
from cairn.snapshots.containers.images import Images
from cairn.snapshots.containers.yard import Limits, Yard
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.native import NativeStore
from cairn.snapshots.replay import ReplayStore
from cairn.snapshots.sessions import SavableSession
from cairn.snapshots.shelf import Shelf
from cairn.store.blobs import BlobFolder
from cairn.testing.memory import MemoryEvents

T = TypeVar("T")

# whose experts keep nothing in mind, so that they can go on wherever they are put
TASKS = ("login-user", "click-checkboxes", "click-tab-2", "use-autocomplete", "click-option", "enter-text")
BUDGET = 400 << 20
_TURNS = 20
_SECONDS = 120.0
_KEEP_ONE_IN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the campaign keeps what it keeps."""

    folder: Path

    @property
    def memory(self) -> Path:
        """A file system of its own, which can be filled."""
        return self.folder / "memory"

    @property
    def images(self) -> Path:
        """In memory."""
        return self.memory / "images"

    @property
    def disk(self) -> Path:
        """Everything that is not in memory."""
        return self.folder / "disk"

    @property
    def journal(self) -> Path:
        """A line for each cycle's beginning and end."""
        return self.folder / "journal.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What came of one fault; of a cycle that its process did not live to end, nothing but the number is known."""

    number: int
    fault: str
    phase: str
    ended: bool
    struck: bool = False
    saved: bool = False
    opened: bool = False
    refused: tuple[str, ...] = ()  # typed errors, which a run counts as infrastructure errors
    wrong: tuple[str, ...] = ()  # what must never be

    def line(self) -> str:
        """For the journal."""
        return CYCLE.dump_json(self).decode() + "\n"


CYCLE = TypeAdapter(Cycle)


@dataclass(slots=True)
class _Account:
    saved: bool = False
    opened: bool = False
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def of(self, what: str, doing: Awaitable[T]) -> T | None:
        """The result; None after an error, which is noted: a typed one is as it should be."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await doing
        except SessionError as error:
            self.refused.append(f"{what}: {error}")
        except TimeoutError:
            self.wrong.append(f"{what} did not end within {_SECONDS:g} s")
        except Exception as error:  # noqa: BLE001 - this is what the campaign looks for
            self.wrong.append(f"{what}: untyped {type(error).__name__}: {error}")
        return None


class Subject:
    """Sessions of MiniWoB++, saved and opened by criu first, then natively, then by replay."""

    def __init__(self, places: Places, *, seed: int) -> None:
        self._places = places
        self._dice = random.Random(seed)  # noqa: S311 - no secret
        self._saboteur = Saboteur(memory=places.memory, dice=self._dice)
        self._blobs = BlobFolder(places.disk / "blobs")
        self._events = MemoryEvents()
        self._shelf = Shelf(places.disk / "shelf")
        self._root = make_root(places.memory)
        self._environment = self._built()

    def _built(self) -> SnapshotEnvironment:
        pages = MiniwobEnvironment(
            blobs=self._blobs, options=MiniwobOptions(limits=PoolLimits(browsers=1, pages_per_browser=4))
        )
        containers = MiniwobContainers(blobs=self._blobs)
        yard = Yard(
            folder=self._root / "yard",
            command=containers.command,
            site=containers.site,
            limits=Limits(disk=128 << 20, memory=600 << 20),
        )
        self._stores: tuple[SnapshotStore, ...] = (
            ContainerStore(containers, yard=yard, images=self._images()),
            NativeStore(pages, folder=self._places.disk / "states"),
            ReplayStore(pages),
        )
        return SnapshotEnvironment(
            pages,
            stores=self._stores,
            shelf=self._shelf,
            blobs=self._blobs,
            events=self._events,
        )

    def _images(self) -> Images:
        return Images(memory=self._places.images, disk=self._places.disk / "images", budget=BUDGET)

    async def close(self) -> None:
        """End everything."""
        await self._environment.close()
        shutil.rmtree(self._root, ignore_errors=True)

    # ── with faults ───────────────────────────────────────────────────────────

    async def cycle(self, number: int) -> Cycle:
        """Save a state and open it again, while one thing goes wrong."""
        strike = self._saboteur.drawn()
        self._note(Cycle(number=number, fault=strike.fault, phase=strike.phase, ended=False))
        account = _Account()
        session = await account.of("a fresh session", self._fresh())
        if session is not None:
            if await account.of("playing", self._advanced(session)):
                await self._saved_and_opened(session, strike, account)
            await account.of("closing", session.close())
        account.wrong += [f"left after a cycle: {left}" for left in self._left()]
        ended = Cycle(
            number=number,
            fault=strike.fault,
            phase=strike.phase,
            ended=True,
            struck=strike.struck,
            saved=account.saved,
            opened=account.opened,
            refused=tuple(account.refused),
            wrong=tuple(account.wrong),
        )
        self._note(ended)
        return ended

    async def _saved_and_opened(self, session: SavableSession, strike: Strike, account: _Account) -> None:
        before = await account.of("looking", session.observe())
        if before is None:
            return
        with self._saboteur.striking(strike, Phase.SAVE):
            kept = await account.of("saving", session.snapshot())
        account.saved = kept is not None
        after = await account.of("looking again", session.observe())
        if after is not None and after.digest != before.digest:
            account.wrong.append("the session that was saved is in another state")
        if kept is None:
            return
        task = self._shelf.get(kept).task
        with self._saboteur.striking(strike, Phase.OPEN, image=self._places.images / kept):
            branch = await account.of("opening", self._environment.open(task, start=FromSnapshot(id=kept)))
        if branch is None and strike.struck and strike.fault is not Fault.DAMAGE:
            branch = await account.of("opening again", self._environment.open(task, start=FromSnapshot(id=kept)))
            if branch is None:
                account.wrong.append("a state that was saved cannot be opened once nothing is wrong any more")
        if branch is not None:
            account.opened = True
            await self._judged(branch, before.digest, account)
            if strike.struck and strike.fault is Fault.DAMAGE and await self._was_accepted(kept):
                account.wrong.append("a damaged image was opened")
        if strike.fault is Fault.DAMAGE or self._dice.randrange(_KEEP_ONE_IN):
            await self._removed(kept, account)

    async def _judged(self, branch: SavableSession, digest: str, account: _Account) -> None:
        """Whether it is in the right state, and can be played on to success."""
        seen = await account.of("looking at a branch", branch.observe())
        if seen is not None and seen.digest != digest:
            account.wrong.append("a branch was opened in a wrong state")
        reward = await account.of("playing on", self._finished(branch))
        if reward is not None and reward != 1.0:
            account.wrong.append(f"a branch that looked right came to the reward {reward}")
        await account.of("closing a branch", branch.close())

    async def _was_accepted(self, kept: SnapshotId) -> bool:
        """Whether its image is damaged still, and nobody has complained."""
        if any(event.kind == "snapshot_failed" and event.fields["snapshot"] == kept for event in self._events.events):
            return False
        try:
            async with self._images().reading(kept):
                return False
        except SessionError:
            return True

    async def _fresh(self) -> SavableSession:
        """At a root, or at a state that was kept before."""
        kept = list(self._shelf)
        if kept and self._dice.random() < 0.4:
            chosen = self._dice.choice(kept)
            return await self._environment.open(chosen.task, start=FromSnapshot(id=chosen.id))
        name = self._dice.choice(TASKS)
        template = Template(id=TemplateId(f"miniwob/{name}"), max_turns=_TURNS)
        task = Task(template=template, split=Split.TRAIN, index=self._dice.randrange(50))
        return await self._environment.open(task, start=Root())

    async def _advanced(self, session: SavableSession) -> bool:
        """A step of the expert, sometimes; whether the episode goes on."""
        await session.observe()
        if session.history or self._dice.random() < 0.5:
            return True
        return not await _step(session)

    async def _finished(self, session: SavableSession) -> float:
        for _ in range(_TURNS):
            await session.observe()
            if await _step(session):
                break
        return (await session.evidence()).raw_reward

    async def _removed(self, kept: SnapshotId, account: _Account) -> None:
        self._shelf.remove(kept)
        for store in self._stores:
            await account.of("removing", store.remove(kept))

    def _left(self) -> list[str]:
        """What no session owns any more."""
        containers = self._root / "yard" / "containers"
        found = [str(path) for path in containers.iterdir()] if containers.is_dir() else []
        found += [str(path) for path in self._places.images.glob(f"*{UNFINISHED}")]
        return found + [str(group) for group in marked_groups() if mark_in(group.name) == mark()]

    def _note(self, cycle: Cycle) -> None:
        with self._places.journal.open("a", encoding="utf-8") as file:
            file.write(cycle.line())

    # ── without ───────────────────────────────────────────────────────────────

    async def review(self) -> None:
        """Open every state that is kept, and play each to the end."""
        for number, snapshot in enumerate(list(self._shelf)):
            account = _Account()
            branch = await account.of(
                "opening", self._environment.open(snapshot.task, start=FromSnapshot(id=snapshot.id))
            )
            account.opened = branch is not None
            if branch is not None:
                await self._judged(branch, snapshot.seen.digest, account)
            account.wrong += [f"{snapshot.id}: {refused}" for refused in account.refused]
            failed = [event for event in self._events.events if event.kind == "snapshot_failed"]
            account.wrong += [f"{snapshot.id} was not opened: {event.fields['error']}" for event in failed]
            self._events.events.clear()
            self._note(
                Cycle(
                    number=number,
                    fault="",
                    phase="review",
                    ended=True,
                    opened=account.opened,
                    wrong=tuple(account.wrong),
                )
            )


async def _step(session: SavableSession) -> bool:
    if not isinstance(session, ExpertSession):
        raise SessionError("this session has no expert")
    action = await session.expert_action()
    if action is None:
        raise SessionError("the expert knows nothing to do here")
    return (await session.act(action)).done


async def _main(folder: Path, seed: int, numbers: range | None) -> None:
    subject = Subject(Places(folder=folder), seed=seed)
    try:
        if numbers is None:
            await subject.review()
        for number in numbers or ():
            await subject.cycle(number)
    finally:
        await subject.close()


if __name__ == "__main__":
    where, chance, *between = sys.argv[1:]
    asyncio.run(_main(Path(where), int(chance), range(int(between[0]), int(between[1])) if between else None))
