"""Whether saved states are what they were: saved at a random step, opened, compared, and played on to the end."""

import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from cairn.data.action import Action, Wait
from cairn.data.ids import SnapshotId
from cairn.data.observation import Observation
from cairn.data.task import FromSnapshot, Split, Task, Template
from cairn.data.trajectory import Evidence
from cairn.errors import BoundaryError, ConfigError
from cairn.ports import Environment, Session
from cairn.testing.agents import ExpertAgent
from cairn.testing.fidelity_report import Cycle, Fate, FidelityReport
from cairn.testing.playing import Call, Played, Player
from cairn.testing.template_checks import raw_reward_is_one

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityOptions:
    """Which states to save."""

    templates: tuple[Template, ...] | None = None  # None: all that an expert solves
    indices: tuple[int, ...] = (0,)  # which training tasks of each template; one state is saved of each
    seed: int = 0  # of the steps at which they are saved
    patience_s: float = 60.0  # for any single call
    succeeded: Callable[[Evidence], bool] = field(default=raw_reward_is_one)


_EVERYTHING = FidelityOptions()


async def check_fidelity(
    environment: Environment,
    *,
    store: str,
    options: FidelityOptions = _EVERYTHING,
    progress: Callable[[Cycle], None] | None = None,
    forget: Callable[[SnapshotId], Awaitable[None]] | None = None,
) -> FidelityReport:
    """Save one state of each task, and see whether what is opened from it goes on as the session it was saved from.

    Of each task the expert plays one whole episode first, for its length. Then it plays another to a random step, at
    least one action from either end where there are so many, which is saved and opened; it plays on in the opened
    session, then in the one that went on. A state is kept where both succeed, by the same actions (waiting aside),
    through states of equal digests. Sessions of `environment` can be saved, and two can be open at once. It is not
    closed. `store` is what the report calls the way to keep states; `progress` is called with every cycle as it ends,
    and `forget` with every snapshot that is needed no longer.
    """
    if environment.capacity < 2:
        raise ConfigError(f"two sessions must be open at once to compare them; {environment.name} has one place")
    templates = _chosen(environment, options)
    bench = _Bench(environment=environment, options=options, forget=forget)
    started = time.perf_counter()
    cycles: list[Cycle] = []
    for template in templates:
        for index in options.indices:
            task = Task(template=template, split=Split.TRAIN, index=index)
            cycles.append(await bench.cycle(task))
            if progress is not None:
                progress(cycles[-1])
    return FidelityReport(
        environment=environment.name, store=store, cycles=tuple(cycles), seconds=time.perf_counter() - started
    )


def _chosen(environment: Environment, options: FidelityOptions) -> Sequence[Template]:
    if options.templates is None:
        return [template for template in environment.templates if environment.has_expert(template)]
    without = [template.id for template in options.templates if not environment.has_expert(template)]
    if without:
        raise ConfigError(f"{', '.join(without)}: no expert can play on from a saved state; choose templates with one")
    return options.templates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """How an episode went on: what was done in which state, and how it ended."""

    done: tuple[tuple[Action, str], ...]  # each with the digest of the state before it; waiting left out
    last: str  # digest of the state at the end
    evidence: Evidence


class _Bench:
    def __init__(
        self,
        *,
        environment: Environment,
        options: FidelityOptions,
        forget: Callable[[SnapshotId], Awaitable[None]] | None,
    ) -> None:
        self._environment = environment
        self._options = options
        self._forget = forget
        self._player = Player(environment=environment, patience_s=options.patience_s)

    async def cycle(self, task: Task) -> Cycle:
        """One state, from its saving to the end. Whatever fails outside is its fate."""
        blank = Cycle(template=task.template.id, task=task.id, step=0, fate=Fate.FAILED)
        try:
            whole = await self._player.play(task, ExpertAgent(), max_turns=task.template.max_turns)
        except BoundaryError as error:
            return replace(blank, fate=Fate.UNFIT, reason=_described(error))
        if not self._options.succeeded(whole.evidence) or not whole.actions:
            return replace(blank, fate=Fate.UNFIT, reason=f"the expert does not solve it: {_said(whole.evidence)}")
        at = replace(blank, step=self._step(task, len(whole.actions)))
        try:
            async with self._player.session(task) as original:
                return await self._branched(original, task, at)
        except BoundaryError as error:
            return replace(at, reason=_described(error))

    def _step(self, task: Task, length: int) -> int:
        """Where an episode of `length` actions is saved."""
        rng = np.random.default_rng([self._options.seed, zlib.crc32(task.template.id.encode()), task.seed])
        return int(rng.integers(min(1, length - 1), length))

    async def _branched(self, original: Session, task: Task, at: Cycle) -> Cycle:
        """Play `original` to the step, save it, open that, and play both to the end."""
        seen = await self._player.look(original, task)
        for _ in range(at.step):
            action = await ExpertAgent().choose(original, seen)
            if action is None:
                return replace(at, fate=Fate.UNFIT, reason="the expert went another way than in the episode before")
            await self._player.timed(Call.ACT, task.id, original.act(action))
            seen = await self._player.look(original, task)
        try:
            kept, save_s = await _timed(self._player.timed(Call.SAVE, task.id, original.snapshot()))
        except BoundaryError as error:
            return replace(at, fate=Fate.UNSAVED, reason=_described(error))
        if kept is None:
            return replace(at, fate=Fate.UNSAVED, reason="this session cannot be saved")
        at = replace(at, save_s=save_s)
        found = await self._opened(task, kept, seen, at)
        if self._forget is not None:
            await self._forget(kept)
        own = await self._course(original, task, at.step)
        if not self._options.succeeded(own.evidence):
            return replace(found[0], fate=Fate.DISTURBED, reason=f"it went on to fail: {_said(own.evidence)}")
        cycle, course = found
        if course is None:
            return cycle
        difference = self._difference(own, course)
        return replace(cycle, fate=Fate.ASTRAY if difference else Fate.KEPT, reason=difference)

    async def _opened(self, task: Task, kept: SnapshotId, seen: Observation, at: Cycle) -> tuple[Cycle, _Course | None]:
        """The course of a session opened from a snapshot; None where its fate is settled before that."""
        opening = self._environment.open(task, start=FromSnapshot(id=kept))
        try:
            branch, open_s = await _timed(self._player.timed(Call.OPEN, task.id, opening))
        except BoundaryError as error:
            return replace(at, fate=Fate.REFUSED, reason=_described(error)), None
        at = replace(at, open_s=open_s)
        try:
            async with self._player.closing(branch, task.id):
                shown = await self._player.look(branch, task)
                if shown.digest != seen.digest:
                    return replace(at, fate=Fate.ASTRAY, reason="what was opened shows another state"), None
                try:
                    return at, await self._course(branch, task, at.step)
                except BoundaryError as error:  # of a state that no expert has ever seen, where the session lives on
                    await self._player.look(branch, task)
                    return replace(at, fate=Fate.ASTRAY, reason=_described(error)), None
        except BoundaryError as error:
            return replace(at, fate=Fate.FAILED, reason=_described(error)), None

    async def _course(self, session: Session, task: Task, step: int) -> _Course:
        turns = max(1, task.template.max_turns - step)
        played = await self._player.go_on(session, task, ExpertAgent(), max_turns=turns)
        last = await self._player.look(session, task)
        return _Course(done=_done(played), last=last.digest, evidence=played.evidence)

    def _difference(self, own: _Course, other: _Course) -> str:
        """How `other` went on otherwise than the session that was saved; empty where it did not."""
        if not self._options.succeeded(other.evidence):
            return f"what was opened went on to fail: {_said(other.evidence)}"
        for number, (mine, its) in enumerate(zip(own.done, other.done, strict=False), start=1):
            if mine[0] != its[0]:
                return f"what was opened went on otherwise: action {number} was {its[0]}, not {mine[0]}"
            if mine[1] != its[1]:
                return f"what was opened went on otherwise: it was in another state before action {number}"
        if len(own.done) != len(other.done):
            return f"what was opened took {len(other.done)} more actions, not {len(own.done)}"
        return "" if own.last == other.last else "what was opened ended in another state"


def _done(played: Played) -> tuple[tuple[Action, str], ...]:
    pairs = zip(played.actions, played.digests, strict=False)
    return tuple((action, digest) for action, digest in pairs if not isinstance(action, Wait))


async def _timed(work: Awaitable[T]) -> tuple[T, float]:
    started = time.perf_counter()
    result = await work
    return result, time.perf_counter() - started


def _described(error: BoundaryError) -> str:
    return f"{type(error).__name__}: {error}"


def _said(evidence: Evidence) -> str:
    return f"reward {evidence.raw_reward:g}, {evidence.state[:120] or 'no state'}"
