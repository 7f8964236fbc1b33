"""What a model that can become a critic by itself knows how to do."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Valuing(Protocol):
    """A model that knows how to say values in the place of logits."""

    def become_critic(self) -> None:
        """One logit after each token from now on, 0 at first."""
        ...
