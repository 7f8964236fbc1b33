"""Whether something works on this host."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """Whether a store works here; where not, why and what to do about it."""

    reason: str = ""  # empty: it works
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether it does."""
        return not self.reason
