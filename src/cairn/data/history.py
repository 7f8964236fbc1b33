"""What was done before a state was reached."""

from dataclasses import dataclass

from cairn.data.action import Action
from cairn.data.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something done on the way to a state, and what was seen before it."""

    observation: Observation
    action: Action
