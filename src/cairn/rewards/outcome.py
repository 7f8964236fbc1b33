"""Rewards of the outcome alone."""

from cairn.data.trajectory import Trajectory
from cairn.errors import VerifierError


class Success:
    """1 where the environment's own reward is exactly 1, else 0: partial work earns nothing."""

    async def score(self, trajectory: Trajectory) -> float:
        if trajectory.evidence is None:
            raise VerifierError(f"a trajectory that ended as {trajectory.ending} left nothing to judge")
        return 1.0 if trajectory.evidence.raw_reward == 1.0 else 0.0
