"""How long a phase of learning goes on: by updates, by minutes of learning, or whichever ends first."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one phase; with neither given the phase is skipped. Time counts learning alone, not evaluation."""

    updates: int | None
    minutes: float | None

    def left(self, *, updates: int, seconds: float) -> bool:
        """Whether another update may begin."""
        if self.updates is None and self.minutes is None:
            return False
        return (self.updates is None or updates < self.updates) and (
            self.minutes is None or seconds < 60 * self.minutes
        )

    def share(self, *, updates: int, seconds: float) -> float:
        """How much of it is used, in [0, 1]: for progress bars."""
        shares = [0.0]
        if self.updates:
            shares.append(updates / self.updates)
        if self.minutes:
            shares.append(seconds / (60 * self.minutes))
        return min(1.0, max(shares))
