"""One group: the siblings of a plan are played, retried where the outside failed, and judged."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cairn.data.task import RolloutPlan
from cairn.data.trajectory import Ending, LostTrajectory, Outcome, ScoredGroup, ScoredTrajectory, Trajectory
from cairn.errors import VerifierError
from cairn.ports import Composition, Event, EventSink, Reward
from cairn.rollout.breaker import CircuitBreaker
from cairn.rollout.episode import EpisodeRunner
from cairn.rollout.unwrap import one_error
from cairn.rollout.waiting import bounded

Record = Callable[[ScoredGroup], None]
"""Where a group goes once nothing of it runs any more."""


Note = Callable[[ScoredTrajectory | LostTrajectory], None]
"""Where a trajectory goes the moment it is over, long before its group may be."""


def forget(what: ScoredGroup | ScoredTrajectory | LostTrajectory) -> None:
    """Record nothing."""
    del what


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How trajectories are judged."""

    reward: Reward  # what it calls 1 is solved
    composition: Composition | None = None  # what is learned from in its place, where it has something to say
    format_penalty: float = 0.0  # the reward of a trajectory that ended in a format error is minus this
    retries: int = 2  # of the judge alone: the trajectory is not played again
    seconds: float = 120.0  # of one try

    async def score(self, trajectory: Trajectory) -> ScoredTrajectory:
        """The trajectory with its verdict; `VerifierError` once every try has failed."""
        for tries_left in reversed(range(self.retries + 1)):
            try:
                return await self._try(trajectory)
            except VerifierError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    def together(self, group: ScoredGroup) -> ScoredGroup:
        """The group with what its siblings earn beside each other, once all of them are over."""
        return group if self.composition is None else replace(group, members=self.composition.together(group.members))

    async def _try(self, trajectory: Trajectory) -> ScoredTrajectory:
        what = f"judge {trajectory.plan.group_id}, sibling {trajectory.sibling}"
        formless = trajectory.ending is Ending.FORMAT_ERROR
        async with bounded(VerifierError, what, seconds=self.seconds):
            reward = -self.format_penalty if formless else await self.reward.score(trajectory)
            solved = reward == 1.0 and not formless
            verdict = await self.composition.verdict(trajectory, solved=solved) if self.composition else None
        terms = verdict.terms if verdict is not None else ()
        if verdict is not None:
            solved, reward = verdict.solved, math.fsum(term.worth for term in terms)
        if not math.isfinite(reward):
            raise VerifierError(f"{what}: the reward is {reward}")
        outcome = Outcome.FORMAT_ERROR if formless else _outcome(trajectory.ending, solved=solved)
        return ScoredTrajectory(trajectory=trajectory, outcome=outcome, reward=reward, terms=terms)


def _outcome(ending: Ending, *, solved: bool) -> Outcome:
    """A trajectory cut at a limit is judged where it was cut: what is solved there is solved."""
    if solved:
        return Outcome.SUCCESS
    return Outcome.FAILURE if ending is Ending.DONE else Outcome.TRUNCATED


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRunner:
    """Plays plans. Several groups may run at once: `places` bounds the episodes of all of them together.

    Consumes plans; produces scored groups. Waits for a place, which every episode gives back within its own limits.
    """

    episodes: EpisodeRunner
    judging: Judging
    breaker: CircuitBreaker
    places: asyncio.Semaphore
    events: EventSink
    retries: int = 2  # of a trajectory lost outside, each on another session
    note: Note = forget

    async def run(self, plan: RolloutPlan, *, abandoned: Record = forget) -> ScoredGroup:
        """Play and judge every sibling. A sibling that stays lost after its retries is missing from `members`.

        Where the run is cancelled or stops on an error, what was played so far goes to `abandoned` first.
        """
        played = _Played(plan=plan, note=self.note)
        try:
            with one_error():
                async with asyncio.TaskGroup() as tasks:
                    for sibling in range(plan.group_size):
                        tasks.create_task(self._sibling(plan, sibling, played))
        except BaseException:
            group = played.group()
            if group.members or group.lost:
                abandoned(group)
            raise
        return self.judging.together(played.group())

    async def _sibling(self, plan: RolloutPlan, sibling: int, played: "_Played") -> None:
        for attempt in range(self.retries + 1):
            async with self.places:
                trajectory = await self.episodes.run(plan, sibling=sibling, attempt=attempt, cancelled=played.cancelled)
            if trajectory.error is None:
                await self._judge(trajectory, played)
                return
            played.lose(trajectory, Outcome.INFRASTRUCTURE_ERROR, trajectory.error)
            self._report(trajectory, "infrastructure_error", trajectory.error)
            self.breaker.lost(trajectory.error)

    async def _judge(self, trajectory: Trajectory, played: "_Played") -> None:
        try:
            member = await self.judging.score(trajectory)
        except VerifierError as error:
            played.lose(trajectory, Outcome.VERIFIER_ERROR, str(error))
            self._report(trajectory, "verifier_error", str(error))
            self.breaker.lost(str(error))
        except asyncio.CancelledError:
            played.lose(trajectory, Outcome.CANCELLED, "cancelled before it was judged")
            raise
        else:
            played.keep(member)
            self.breaker.kept()

    def _report(self, trajectory: Trajectory, kind: str, error: str) -> None:
        self.events.emit(
            Event(
                kind=kind,
                fields={
                    "group": trajectory.plan.group_id,
                    "task": trajectory.plan.task.id,
                    "sibling": trajectory.sibling,
                    "attempt": trajectory.attempt,
                    "error": error,
                },
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """What has come of a group so far."""

    plan: RolloutPlan
    note: Note
    members: list[ScoredTrajectory] = field(default_factory=list[ScoredTrajectory])
    lost: list[LostTrajectory] = field(default_factory=list[LostTrajectory])

    def keep(self, member: ScoredTrajectory) -> None:
        self.members.append(member)
        self.note(member)

    def lose(self, trajectory: Trajectory, outcome: Outcome, reason: str) -> None:
        lost = LostTrajectory(trajectory=trajectory, outcome=outcome, reason=reason)
        self.lost.append(lost)
        self.note(lost)

    def cancelled(self, trajectory: Trajectory) -> None:
        self.lose(trajectory, Outcome.CANCELLED, "cancelled while it was played")

    def group(self) -> ScoredGroup:
        """In the order of siblings and attempts, whichever came in first."""
        return ScoredGroup(
            plan=self.plan,
            members=tuple(sorted(self.members, key=lambda m: m.trajectory.sibling)),
            lost=tuple(sorted(self.lost, key=lambda m: (m.trajectory.sibling, m.trajectory.attempt))),
        )
