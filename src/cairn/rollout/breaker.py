"""The circuit breaker: a run with a broken environment stops, rather than learn from what survives."""

from collections import deque

from cairn.errors import CircuitOpenError, ConfigError


class CircuitBreaker:
    """Watches the last `window` trajectories; opens when the share that was lost outside reaches `share`.

    It stays closed until `at_least` trajectories were seen, so that one early failure is no verdict.
    """

    def __init__(self, *, share: float = 0.5, window: int = 64, at_least: int = 16) -> None:
        if not 0 < share <= 1 or window < 1 or at_least < 1:
            raise ConfigError("a circuit breaker needs a share in (0, 1], and a window and a minimum of at least 1")
        self._share = share
        self._at_least = min(at_least, window)
        self._lost: deque[bool] = deque(maxlen=window)

    def kept(self) -> None:
        """A trajectory came back with evidence."""
        self._lost.append(False)

    def lost(self, error: str) -> None:
        """A trajectory was lost to `error`; raises `CircuitOpenError` where too many were."""
        self._lost.append(True)
        seen, lost = len(self._lost), sum(self._lost)
        if seen >= self._at_least and lost >= self._share * seen:
            raise CircuitOpenError(
                f"{lost} of the last {seen} trajectories were lost to failures outside the policy "
                f"(the run stops at {self._share:.0%}); the last one: {error}"
            )
