"""One episode: a session and the policy take turns until one of them stops, and the trajectory says why."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from cairn.data.action import Invalid
from cairn.data.history import Deed
from cairn.data.observation import Observation
from cairn.data.task import Recorded, RolloutPlan
from cairn.data.trajectory import Completion, Ending, Evidence, Prompt, Seconds, Trajectory, Turn
from cairn.errors import BoundaryError, EngineError, SessionError
from cairn.ports import Clock, Codec, Engine, Event, EventSink, ResumedSession, Sampling, Session, SessionFactory, Step
from cairn.rollout.waiting import bounded, finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one trajectory may cost. Turns are limited by the plan's depth."""

    sampled_tokens: int = 4096  # in all of its answers; what is beyond ends it as OUT_OF_TOKENS
    invalid_answers: int = 1  # the one that ends it as FORMAT_ERROR; those before get a message and cost a turn
    open_seconds: float = 120.0  # waiting for a free place included
    step_seconds: float = 60.0  # one observe, act or evidence
    answer_seconds: float = 120.0
    close_seconds: float = 30.0
    episode_seconds: float = 600.0  # from the opened session to its evidence; beyond is an infrastructure error


def turn_seed(plan: RolloutPlan, *, sibling: int, attempt: int, turn: int) -> int:
    """A seed of its own for every turn of every attempt of every sibling of every plan; in [0, 2^63)."""
    words = np.random.SeedSequence(plan.seed, spawn_key=(sibling, attempt, turn)).generate_state(2)
    return ((int(words[0]) << 32) | int(words[1])) >> 1


def drop(trajectory: Trajectory) -> None:
    """Forget a cancelled trajectory."""
    del trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRunner:
    """Plays one sibling of a plan. A session never outlives the call, however it ends."""

    sessions: SessionFactory
    engine: Engine
    codec: Codec
    sampling: Sampling
    limits: Limits
    clock: Clock
    events: EventSink

    async def run(
        self,
        plan: RolloutPlan,
        *,
        sibling: int,
        attempt: int = 0,
        cancelled: Callable[[Trajectory], None] = drop,
    ) -> Trajectory:
        """Play once. What fails outside is recorded on the trajectory and never raised.

        A cancellation hands what was played so far to `cancelled`, closes the session and goes on.
        """
        episode = _Episode(runner=self, plan=plan, sibling=sibling, attempt=attempt)
        try:
            ending, evidence = await episode.play()
        except asyncio.CancelledError:
            cancelled(episode.trajectory(Ending.CANCELLED, evidence=None, error=None))
            raise
        except BoundaryError as failure:
            error = str(failure) or type(failure).__name__
            return episode.trajectory(Ending.INFRASTRUCTURE_ERROR, evidence=None, error=error)
        return episode.trajectory(ending, evidence=evidence, error=None)


@dataclass(slots=True, kw_only=True)
class _Episode:
    """The state of one run."""

    runner: EpisodeRunner
    plan: RolloutPlan
    sibling: int
    attempt: int
    goal: str = ""
    before: tuple[Deed, ...] = ()  # what was done before the session began
    turns: list[Turn] = field(default_factory=list[Turn])
    sampled: int = 0
    invalid: int = 0
    message: str = ""  # what the policy is told with the next observation
    seconds: Seconds = field(default_factory=Seconds)
    deadline: float = float("inf")

    def trajectory(self, ending: Ending, *, evidence: Evidence | None, error: str | None) -> Trajectory:
        return Trajectory(
            plan=self.plan,
            sibling=self.sibling,
            attempt=self.attempt,
            goal=self.goal,
            turns=tuple(self.turns),
            ending=ending,
            evidence=evidence,
            error=error,
            seconds=self.seconds,
        )

    async def play(self) -> tuple[Ending, Evidence]:
        limits, clock = self.runner.limits, self.runner.clock
        start = self.plan.start
        self.deadline = clock.now() + limits.episode_seconds
        if isinstance(start, Recorded):
            return await self._answer_recorded(start)
        began = clock.now()
        try:
            async with bounded(SessionError, f"open {self.plan.task.id}", seconds=limits.open_seconds):
                session = await self.runner.sessions.open(self.plan.task, start=start)
        finally:
            self.seconds = replace(self.seconds, opening=clock.now() - began)
        self.deadline = clock.now() + limits.episode_seconds
        try:
            self.goal = session.goal
            self.before = tuple(session.history) if isinstance(session, ResumedSession) else ()
            ending = await self._take_turns(session)
            async with self._outside(SessionError, "evidence"):
                return ending, await session.evidence()
        finally:
            await finish(asyncio.create_task(self._close(session)))

    async def _answer_recorded(self, start: Recorded) -> tuple[Ending, Evidence]:
        """One answer at a state that is only known from a record: nothing is opened, nothing is performed."""
        self.goal, self.before = start.goal, start.history
        ending = self._after_answer(await self._ask(start.observation))
        if ending is None and isinstance(self.turns[-1].action, Invalid):
            ending = Ending.FORMAT_ERROR  # there is no second answer in which to do better
        return ending or Ending.DONE, Evidence(done=False, raw_reward=0.0, state="")

    async def _take_turns(self, session: Session) -> Ending:
        for index in range(self.plan.depth):
            if self.sampled >= self.runner.limits.sampled_tokens:
                return Ending.OUT_OF_TOKENS
            async with self._outside(SessionError, f"observe, turn {index}"):
                seen = await session.observe()
            turn = await self._ask(replace(seen, message=self.message) if self.message else seen)
            ending = self._after_answer(turn)
            if ending is not None:
                return ending
            if isinstance(turn.action, Invalid):
                self.message = turn.action.reason
                continue
            async with self._outside(SessionError, f"act, turn {index}"):
                step: Step = await session.act(turn.action)
            self.message = step.message
            if step.done:
                return Ending.DONE
        return Ending.OUT_OF_TURNS

    def _after_answer(self, turn: Turn) -> Ending | None:
        """How the answer alone ends the episode; None where it goes on."""
        if turn.completion.truncated:
            return Ending.OUT_OF_TOKENS
        if isinstance(turn.action, Invalid):
            self.invalid += 1
            if self.invalid >= self.runner.limits.invalid_answers:
                return Ending.FORMAT_ERROR
        return None

    async def _ask(self, seen: Observation) -> Turn:
        """Prompt, sample, parse; the turn is recorded before it is performed, so that no sampled token is lost."""
        runner, index = self.runner, len(self.turns)
        goal = seen.instruction(self.goal)
        prompt = runner.codec.prompt(goal, (*self.before, *self.turns), seen)
        completion = await self._sample(prompt, index)
        self.sampled += completion.token_ids.shape[0]
        if completion.truncated:  # half an answer is no answer
            action = Invalid(text="", reason=f"the answer was cut after {completion.token_ids.shape[0]} tokens")
        else:
            action = runner.codec.parse(goal, completion.token_ids, seen)
        turn = Turn(observation=seen, prompt=prompt, completion=completion, action=action)
        self.turns.append(turn)
        return turn

    async def _sample(self, prompt: Prompt, index: int) -> Completion:
        runner = self.runner
        left = runner.limits.sampled_tokens - self.sampled
        longest = min(runner.sampling.max_tokens, runner.codec.max_answer_tokens, left)
        temperature = 0.0 if self.plan.purpose.greedy else runner.sampling.temperature
        sampling = replace(runner.sampling, max_tokens=longest, temperature=temperature)
        seed = turn_seed(self.plan, sibling=self.sibling, attempt=self.attempt, turn=index)
        async with self._outside(EngineError, f"generate, turn {index}"):
            return await runner.engine.generate(prompt, sampling=sampling, seed=seed)

    async def _close(self, session: Session) -> None:
        """A session that does not close leaks, which is reported, but what it showed before still counts."""
        clock, began = self.runner.clock, self.runner.clock.now()
        try:
            async with bounded(SessionError, f"close {self.plan.task.id}", seconds=self.runner.limits.close_seconds):
                await session.close()
        except SessionError as error:
            self.runner.events.emit(
                Event(kind="close_failed", fields={"group": self.plan.group_id, "error": str(error)})
            )
        self.seconds = replace(self.seconds, closing=clock.now() - began)

    @asynccontextmanager
    async def _outside(self, kind: type[BoundaryError], what: str) -> AsyncGenerator[None]:
        """A call to the session or the engine: timed, bounded by its own limit and by what is left of the episode."""
        limits, clock = self.runner.limits, self.runner.clock
        engine = kind is EngineError
        began = clock.now()
        left = self.deadline - began
        if left <= 0:
            raise kind(f"{what}: the {limits.episode_seconds:.4g} s of the episode had run out")
        own = limits.answer_seconds if engine else limits.step_seconds
        if left < own:  # people are told which key of a recipe it is
            what = f"{what}, at the end of the {limits.episode_seconds:.4g} s of the episode (rollout.max_seconds)"
        try:
            async with bounded(kind, what, seconds=min(own, left)):
                yield
        finally:
            spent, sum_ = clock.now() - began, self.seconds
            self.seconds = (
                replace(sum_, engine=sum_.engine + spent)
                if engine
                else replace(sum_, environment=sum_.environment + spent)
            )
