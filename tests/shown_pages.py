"""Pages to show a codec."""

import numpy as np

from cairn.data.action import Action
from cairn.data.ids import ElementId, ImageId
from cairn.data.observation import Box, Element, Observation
from cairn.data.trajectory import Completion, Prompt, Turn


def element(
    number: int,
    label: str = "",
    *,
    role: str = "button",
    value: str = "",
    states: tuple[str, ...] = (),
    interactive: bool = True,
    box: Box | None = None,
) -> Element:
    return Element(
        id=ElementId(number),
        role=role,
        label=label,
        value=value,
        states=states,
        interactive=interactive,
        box=box or Box(left=0.1, top=0.5, width=0.25, height=0.1),
    )


def page(*elements: Element, message: str = "") -> Observation:
    return Observation(image=ImageId("0" * 64), elements=elements, accessibility="", url="", digest="", message=message)


def turn(action: Action, seen: Observation) -> Turn:
    """A turn whose tokens do not matter."""
    one = np.array([1], np.int32)
    return Turn(
        observation=seen,
        prompt=Prompt(token_ids=one, images=()),
        completion=Completion(token_ids=one, logprobs=np.zeros(1, np.float32), versions=one, truncated=False),
        action=action,
    )
