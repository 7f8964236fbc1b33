"""States that are only known from a record: what was to be done, what was seen, and what somebody did there."""

from dataclasses import dataclass, replace
from enum import StrEnum

from cairn.data.action import Click, DoubleClick, Hover, Invalid, LongPress, Point, RightClick
from cairn.data.action_json import kind_of
from cairn.data.ids import TemplateId
from cairn.data.matching import aim_of
from cairn.data.observation import Box
from cairn.data.task import Recorded, Split, Task, Template


class RecordFormat(StrEnum):
    """Public data sets that can be read."""

    SCREENSPOT = "screenspot"
    SCREENSPOT_V2 = "screenspot-v2"
    SCREENSPOT_PRO = "screenspot-pro"
    ANDROID_CONTROL = "androidcontrol"
    AITW = "aitw"
    GUI_R1 = "gui-r1"
    OMNIACT = "omniact"
    LLAVA = "llava"


class Grid(StrEnum):
    """What the numbers of a place count, where a format leaves that open."""

    AUTO = "auto"
    FRACTION = "fraction"
    THOUSANDTHS = "thousandths"
    PIXELS = "pixels"


PREFIX = "recorded/"
"""Begins the names of templates of which there are records alone: nothing of that name can be opened."""


class Recovery(StrEnum):
    """States after something wrong was done: what is right there (InfiGUI-R1, arXiv:2504.14239)."""

    ESCAPE = "escape"  # undoing it
    ON_TRACK = "on-track"  # once it is undone, what was right before


def recovery_of(template: str) -> Recovery | None:
    """Which of the two the states of a recorded template are; None for all others."""
    first = template.removeprefix(PREFIX).partition("/")[0]
    return Recovery(first) if first in set(Recovery) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedState:
    """One state of a data set, with what its source said of it."""

    task: Task  # all states of one task stand on one side of the split
    episode: str  # the way through the task that it lies on, as the source names it
    step: int  # of that way, from 0
    source: str  # the format, or the run, that it came from
    start: Recorded

    @property
    def name(self) -> str:
        """No two states of a set share it."""
        return f"{self.episode}@{self.step}"

    @property
    def kind(self) -> str:
        """Of the expert's action, such as `click`."""
        return kind_of(self.start.expert)


class Instruction(StrEnum):
    """What the policy is told to do at a recorded state."""

    GOAL = "goal"  # of the whole episode
    SUB_GOAL = "sub_goal"  # of this step, where it is known; else the goal
    BOTH = "both"


def told(start: Recorded, instruction: Instruction) -> Recorded:
    """The same state with another instruction."""
    if instruction is Instruction.GOAL or not start.sub_goal:
        return start
    whole = start.observation.instruction(start.goal)
    goal = start.sub_goal if instruction is Instruction.SUB_GOAL else f"{whole}\nThis step: {start.sub_goal}"
    # a part of an episode may have a goal of its own, which would be heard in the place of this one
    return replace(start, goal=goal, observation=replace(start.observation, goal=""))


def target_box(start: Recorded) -> Box | None:
    """Where the expert's action may aim: the recorded box, else that of its element; None where there is neither."""
    if start.target is not None:
        return start.target
    aim = aim_of(start.expert)
    if aim is None or isinstance(aim, Point):
        return None
    element = start.observation.element(aim)
    return None if element is None else element.box


def recorded_task(template: str, index: int) -> Task:
    """The `index`-th task of that template, of which there are records alone; on the training side until divided."""
    return Task(template=Template(id=TemplateId(f"{PREFIX}{template}"), max_turns=1), split=Split.TRAIN, index=index)


def sound(start: Recorded, *, largest: float = 0.5) -> bool:
    """Whether a state is of the quality to learn at: it says what to do, and whoever points, points into a box.

    UI-R1 (arXiv:2503.21620) takes clicks from where boxes are exact. A box of more than `largest` of the screen tells
    right from wrong no more.
    """
    if not start.observation.instruction(start.goal).strip() or isinstance(start.expert, Invalid):
        return False
    if not isinstance(start.expert, Click | DoubleClick | RightClick | LongPress | Hover):
        return True
    box = target_box(start)
    return box is not None and 0 < box.width * box.height <= largest
