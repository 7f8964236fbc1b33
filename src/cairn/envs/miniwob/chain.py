"""Several MiniWoB++ tasks, one after the other in one episode: long, with one success in the end."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cairn.data.action import Action, Answer, Finish
from cairn.data.ids import SnapshotId, TemplateId
from cairn.data.observation import Observation
from cairn.data.task import Root, Start, Task, Template
from cairn.data.trajectory import Evidence
from cairn.envs.chromium.page import Page
from cairn.envs.miniwob.environment import MiniwobEnvironment
from cairn.envs.miniwob.experts.tasks import EXPERT_TASKS
from cairn.envs.miniwob.session import MiniwobSession, SessionState
from cairn.envs.opening import once_ready, require_root
from cairn.errors import ConfigError, SessionError
from cairn.ports import Step

NAME = "miniwob-chain"
CHAINS: tuple[tuple[str, ...], ...] = (
    ("login-user", "enter-password", "click-collapsible"),
    ("enter-password", "enter-text", "login-user"),
    ("login-user-popup", "enter-text", "click-dialog", "enter-text-dynamic"),
    ("enter-text", "login-user", "click-dialog", "enter-text-dynamic"),
    ("form-sequence-2", "enter-password", "enter-text"),
    ("click-collapsible", "login-user", "enter-password"),
)
_TURNS_PER_TASK = 12
_PLUS = "+"
_FURTHER = 7919  # seeds of the parts are this far apart


def chain_templates() -> tuple[Template, ...]:
    """One for each chain, named after its tasks."""
    return tuple(
        Template(id=TemplateId(f"{NAME}/{_PLUS.join(chain)}"), max_turns=_TURNS_PER_TASK * len(chain))
        for chain in CHAINS
    )


def tasks_of(name: str) -> tuple[str, ...]:
    """The tasks of a chain, by its template's name without the environment's."""
    return tuple(name.split(_PLUS))


def seed_of(seed: int, part: int) -> int:
    """The seed of one part; the split stays the same, for parts of one million seeds lie apart."""
    million, rest = divmod(seed, 1_000_000)
    return million * 1_000_000 + (rest + part * _FURTHER) % 1_000_000


Begin = Callable[[int], Awaitable[MiniwobSession]]
"""Begins the part of that number in the chain's one tab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """What another session of the same tab must know: the rest is in the page."""

    goal: str
    performed: tuple[str, ...]  # what each part before the present one has exported
    session: SessionState


class ChainSession:
    """One task after the other in one tab; the first that fails ends the episode."""

    def __init__(self, *, tasks: Sequence[str], begin: Begin, give_back: Callable[[], Awaitable[None]]) -> None:
        self._tasks = tuple(tasks)
        self._begin = begin
        self._give_back = give_back
        self._now: MiniwobSession | None = None
        self._part = 0
        self._goal = ""
        self._over: Evidence | None = None
        self._performed: list[str] = []  # what each part before the present one has exported
        self._closed = False

    async def begin(self) -> None:
        """Load the first part."""
        self._now = await self._begin(0)
        self._goal = f"{len(self._tasks)} tasks, one after the other. First: {self._now.goal}"

    def state(self) -> ChainState:
        """For `resume`."""
        return ChainState(goal=self._goal, performed=tuple(self._performed), session=self._present().state())

    def resume(self, state: ChainState, session: MiniwobSession) -> None:
        """Go on where another session of this tab stopped; `session` is its present part, resumed."""
        self._goal, self._performed = state.goal, list(state.performed)
        self._part, self._now = len(state.performed), session

    @property
    def goal(self) -> str:
        """Of the whole; each observation says what is to be done now."""
        return self._goal

    async def observe(self) -> Observation:
        """What the present part shows; the digest is of the part as well."""
        session = self._present()
        seen = await session.observe()
        return replace(seen, goal=session.goal, digest=f"{self._part}-{seen.digest}")

    async def act(self, action: Action) -> Step:
        """Perform it; where it solves the present part, the next one is loaded."""
        session = self._present()
        step = await session.act(action)
        if not step.done:
            return step
        evidence = await session.evidence()
        last = self._part + 1 == len(self._tasks)
        if evidence.raw_reward != 1.0 or last or isinstance(action, Answer | Finish):
            self._over = evidence if last else replace(evidence, raw_reward=min(0.0, evidence.raw_reward))
            return Step(done=True, message=step.message)
        self._performed.append((await session.export_state()).decode())
        self._part += 1
        self._now = await self._begin(self._part)
        return Step(done=False, message=step.message)

    async def evidence(self) -> Evidence:
        """1 where every part was solved."""
        if self._over is not None:
            return self._over
        now = await self._present().evidence()
        return replace(now, done=False, raw_reward=0.0)

    async def export_state(self) -> bytes:
        """What every part so far tells of itself."""
        return json.dumps([*self._performed, (await self._present().export_state()).decode()]).encode()

    async def repeat(self, state: bytes) -> None:
        """Do what `export_state` told of, without pictures. The session has only just begun."""
        try:
            parts = [str(part) for part in json.loads(state)]
        except ValueError as error:
            raise SessionError(f"the saved actions are damaged: {error}") from error
        for number, part in enumerate(parts):
            await self._present().repeat(part.encode())
            if number + 1 < len(parts):
                self._performed.append(part)
                self._part += 1
                self._now = await self._begin(self._part)

    async def snapshot(self) -> SnapshotId | None:
        """A page cannot be saved by itself."""
        return None

    async def script_errors(self) -> int:
        """Of the present part's page."""
        return await self._present().script_errors()

    async def expert_action(self) -> Action | None:
        """That of the present part's expert."""
        return await self._present().expert_action()

    async def close(self) -> None:
        """Give the tab back. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._give_back()

    def _present(self) -> MiniwobSession:
        if self._closed or self._now is None:
            raise SessionError("the session is closed")
        return self._now


class ChainEnvironment:
    """Chains of MiniWoB++ tasks, each an episode with one success in the end."""

    def __init__(self, environment: MiniwobEnvironment) -> None:
        """`environment` lends its tabs, and is closed with this one."""
        self._environment = environment

    @property
    def name(self) -> str:
        """As recipes and task ids spell it."""
        return NAME

    @property
    def capacity(self) -> int:
        """Sessions at once."""
        return self._environment.capacity

    @property
    def templates(self) -> Sequence[Template]:
        """One for each chain."""
        return chain_templates()

    def has_expert(self, template: Template) -> bool:
        """Whether scripts solve all of its parts."""
        return all(task in EXPERT_TASKS for task in tasks_of(chain_of(template)))

    async def open(self, task: Task, *, start: Start) -> ChainSession:
        """Start an episode with the first part's page, once a place is free."""
        require_root(NAME, start)
        tasks = tasks_of(chain_of(task.template))
        page, give_back = await self._environment.borrow()
        session = ChainSession(
            tasks=tasks,
            begin=partial(self._begun, page, tasks, task.seed),
            give_back=give_back,
        )
        return await once_ready(session, session.begin())

    @property
    def uncovered(self) -> Sequence[str]:
        """What an exported state leaves out: nothing, as of the tasks themselves."""
        return self._environment.uncovered

    async def import_state(self, task: Task, state: bytes) -> ChainSession:
        """A session that has done again, without pictures, what another one did."""
        session = await self.open(task, start=Root())
        return await once_ready(session, session.repeat(state))

    async def close(self) -> None:
        """End the browsers. Idempotent."""
        await self._environment.close()

    async def _begun(self, page: Page, tasks: Sequence[str], seed: int, part: int) -> MiniwobSession:
        session = self._environment.session_in(page, tasks[part])
        await session.begin(seed_of(seed, part))
        return session


def chain_of(template: Template) -> str:
    """The chain's name; raises `ConfigError` where there is none of it."""
    name = template.id.removeprefix(f"{NAME}/")
    if tasks_of(name) not in CHAINS:
        raise ConfigError(f"{NAME} has no task {name!r}; `cairn env tasks {NAME}` lists them")
    return name
