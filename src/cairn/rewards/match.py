"""The reward of one answer at a recorded state: whether it does what the expert did next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cairn.data.action import Action, Invalid
from cairn.data.checkpoint import Checkpoint, Track
from cairn.data.ids import TaskId
from cairn.data.matching import Matching
from cairn.data.task import Recorded, Task
from cairn.data.trajectory import Trajectory
from cairn.errors import SessionError, VerifierError
from cairn.ports import Reward, SessionFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMatch:
    """1 where the first answer is the expert's action under `rules`, else 0 ("Where to Learn …", stage I)."""

    rules: Matching

    async def score(self, trajectory: Trajectory) -> float:
        start = trajectory.plan.start
        if not isinstance(start, Recorded):
            raise VerifierError(f"{trajectory.plan.group_id} does not start at a recorded state: no expert to match")
        if not trajectory.turns:
            return 0.0
        return float(self.rules.agrees(trajectory.turns[0].action, start.expert, start.observation))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTheWay:
    """1 also where another action leads on: to a later state of the same way, or to the task's success.

    Beyond the paper. It is found out by doing the action in a session that is opened at the state, once for each action
    at each state; where there is no snapshot to open, `match` alone decides.
    """

    match: Reward
    sessions: SessionFactory
    tracks: Sequence[Track]
    tried: Callable[[Task], None]  # told of every action that is executed
    _known: dict[tuple[TaskId, int, Action], bool] = field(
        default_factory=dict[tuple[TaskId, int, Action], bool], init=False
    )

    async def score(self, trajectory: Trajectory) -> float:
        reward = await self.match.score(trajectory)
        start, turns = trajectory.plan.start, trajectory.turns
        if reward == 1.0 or not turns or not isinstance(start, Recorded) or isinstance(turns[0].action, Invalid):
            return reward
        task, step, action = trajectory.plan.task, len(start.history), turns[0].action
        way = next((track.checkpoints for track in self.tracks if track.task == task), ())
        here = next((checkpoint for checkpoint in way if checkpoint.step == step), None)
        if here is None or here.snapshot is None:
            return reward
        key = (task.id, step, action)
        if key not in self._known:
            ahead = {later.observation.digest for later in way if later.step > step} - {here.observation.digest}
            self._known[key] = await self._leads_on(here, action, ahead)
        return 1.0 if self._known[key] else reward

    async def _leads_on(self, here: Checkpoint, action: Action, ahead: set[str]) -> bool:
        try:
            session = await self.sessions.open(here.task, start=here.resumed())
            try:
                await session.observe()  # which numbers the elements
                self.tried(here.task)
                if (await session.act(action)).done:
                    return (await session.evidence()).raw_reward == 1.0
                return (await session.observe()).digest in ahead
            finally:
                await session.close()
        except SessionError as error:
            raise VerifierError(f"{here.task.id}, step {here.step}: the answer could not be tried: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ByStart:
    """One reward for answers at recorded states, another for what happened in a live session."""

    recorded: Reward
    lived: Reward

    async def score(self, trajectory: Trajectory) -> float:
        reward = self.recorded if isinstance(trajectory.plan.start, Recorded) else self.lived
        return await reward.score(trajectory)
