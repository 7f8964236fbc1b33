"""The reward of one answer at a recorded state: whether it does what the expert did next."""

from dataclasses import dataclass

from cairn.data.matching import Matching
from cairn.data.task import Recorded
from cairn.data.trajectory import Trajectory
from cairn.errors import VerifierError
from cairn.ports import Reward


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
class ByStart:
    """One reward for answers at recorded states, another for what happened in a live session."""

    recorded: Reward
    lived: Reward

    async def score(self, trajectory: Trajectory) -> float:
        reward = self.recorded if isinstance(trajectory.plan.start, Recorded) else self.lived
        return await reward.score(trajectory)
