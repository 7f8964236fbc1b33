"""What an agent can do: a closed union. Coordinates are fractions of the screen, whatever the model's own space."""

from dataclasses import dataclass
from enum import StrEnum

from cairn.data.ids import ElementId
from cairn.errors import InvariantError


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the screen: fractions of its width and height, in [0, 1], origin at the top left."""

    x: float
    y: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.x <= 1.0 and 0.0 <= self.y <= 1.0):
            raise InvariantError(f"a point lies in [0, 1] x [0, 1], got ({self.x}, {self.y})")


Target = ElementId | Point


class FinishStatus(StrEnum):
    """What the agent says of its own work when it stops."""

    DONE = "done"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Click:
    """Press and release the left button."""

    target: Target


@dataclass(frozen=True, slots=True)
class DoubleClick:
    """Two clicks in quick succession."""

    target: Target


@dataclass(frozen=True, slots=True)
class RightClick:
    """Press and release the right button."""

    target: Target


@dataclass(frozen=True, slots=True)
class LongPress:
    """Press, hold for a second, release."""

    target: Target


@dataclass(frozen=True, slots=True)
class Hover:
    """Move the pointer without pressing."""

    target: Target


@dataclass(frozen=True, slots=True)
class Drag:
    """Press at `source`, move to `target`, release."""

    source: Target
    target: Target


@dataclass(frozen=True, slots=True)
class Scroll:
    """Turn the wheel over `target` (None: mid-screen) by a share of the screen; positive is down or right."""

    target: Target | None
    dx: float
    dy: float


@dataclass(frozen=True, slots=True)
class Type:
    """Enter text. With a target, focus it first and replace what it holds; on a native select, choose that option."""

    text: str
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """Press one key or chord, in the browser's own names: `Enter`, `Tab`, `ArrowDown`, `Control+a`."""

    keys: str


@dataclass(frozen=True, slots=True)
class Open:
    """Go to a URL (browser) or open an app by name (phone)."""

    what: str


@dataclass(frozen=True, slots=True)
class Back:
    """The system's or the browser's back button."""


@dataclass(frozen=True, slots=True)
class Home:
    """The system's home button; in a browser, the task's first page."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Let the interface go on for `seconds` of its own time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Give the answer that the task asks for, in words."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Declare the episode over."""

    status: FinishStatus = FinishStatus.DONE


@dataclass(frozen=True, slots=True)
class Invalid:
    """An answer that holds no action. `reason` is what the policy is told."""

    text: str
    reason: str


Action = (
    Click | DoubleClick | RightClick | LongPress | Hover | Drag | Scroll | Type | Key
    | Open | Back | Home | Wait | Answer | Finish | Invalid
)  # fmt: skip


def target_of(action: Action) -> Target | None:
    """Where an action is aimed, of a drag its beginning; None where it is aimed at nothing."""
    match action:
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            return target
        case Scroll(target, _, _) | Type(_, target):
            return target
        case Drag(source, _):
            return source
        case _:
            return None
