"""What an agent is shown: a screenshot by its hash, and the page as numbered elements."""

from dataclasses import dataclass

from cairn.data.action import Point
from cairn.data.ids import ElementId, ImageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle on the screen, in fractions of it; may reach outside [0, 1] where it is scrolled away."""

    left: float
    top: float
    width: float
    height: float

    @property
    def center(self) -> Point:
        """The middle, clamped to the screen."""
        return Point(min(1.0, max(0.0, self.left + self.width / 2)), min(1.0, max(0.0, self.top + self.height / 2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One visible thing of the page. Ids number the elements of one observation from 1, in document order."""

    id: ElementId
    role: str
    """button, link, checkbox, radio, input, select, option, text, image, area, …"""

    label: str  # what a person reads on it or beside it; may be empty
    value: str  # typed text, chosen option, slider position; empty where the role has none
    states: tuple[str, ...]  # sorted; of "checked", "disabled", "expanded", "focused", "selected", "readonly"
    interactive: bool  # can be acted on; False: text or picture, there to be read
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the agent is shown before one turn."""

    image: ImageId | None
    elements: tuple[Element, ...]
    accessibility: str
    """The accessibility tree in BrowserGym's style, one `[id] role 'name'` a line; may be empty."""

    url: str
    digest: str  # hash of the structured state: equal digests show the same page
    message: str = ""  # what the last action came to, where the agent must be told ("no element 7")
    goal: str = ""  # the instruction of this part, where an episode has several; empty: the session's holds

    def instruction(self, goal: str) -> str:
        """What is to be done now, in an episode whose goal is `goal`."""
        return self.goal or goal

    def element(self, wanted: ElementId) -> Element | None:
        """The element with that id, or None."""
        index = wanted - 1
        return self.elements[index] if 0 <= index < len(self.elements) else None
