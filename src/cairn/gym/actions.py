"""Actions as Gymnasium has them: a point of a space of fixed size."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Home,
    Hover,
    Invalid,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
    Wait,
)
from cairn.data.ids import ElementId
from cairn.errors import ConfigError

GymAction: TypeAlias = dict[str, Any]  # Gymnasium's own form: one entry for each part of the space

CHARACTERS = frozenset(map(chr, (*range(32, 127), *range(160, 256)))) | {"\n"}
_WAIT_S = 0.5


class Verb(StrEnum):
    """The action space's verbs, in the order of their numbers."""

    CLICK = "click"
    DOUBLE_CLICK = "double_click"
    RIGHT_CLICK = "right_click"
    LONG_PRESS = "long_press"
    HOVER = "hover"
    DRAG = "drag"
    SCROLL = "scroll"
    TYPE = "type"
    KEY = "key"
    OPEN = "open"
    BACK = "back"
    HOME = "home"
    WAIT = "wait"
    ANSWER = "answer"
    FINISH = "finish"
    INFEASIBLE = "infeasible"


VERBS = tuple(Verb)


def action_space(*, max_elements: int, max_typed: int) -> spaces.Dict:
    """The space of `GymAction`; parts that a verb has no use for are ignored."""
    return spaces.Dict(
        {
            "verb": spaces.Discrete(len(VERBS)),
            "element": spaces.Discrete(max_elements + 1),  # 0: `point`
            "point": spaces.Box(0.0, 1.0, (2,), np.float32),
            "to_element": spaces.Discrete(max_elements + 1),
            "to_point": spaces.Box(0.0, 1.0, (2,), np.float32),
            "scroll": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "text": spaces.Text(max_typed, min_length=0, charset=CHARACTERS),
        }
    )


def to_action(chosen: GymAction) -> Action:
    """The action that a point of the action space stands for."""
    target = _target(chosen["element"], chosen["point"])
    text = str(chosen["text"])
    verb = VERBS[int(chosen["verb"])]
    match verb:
        case Verb.DRAG:
            return Drag(target, _target(chosen["to_element"], chosen["to_point"]))
        case Verb.SCROLL:
            return Scroll(target, float(chosen["scroll"][0]), float(chosen["scroll"][1]))
        case Verb.TYPE:
            return Type(text, target if int(chosen["element"]) else None)
        case Verb.CLICK | Verb.DOUBLE_CLICK | Verb.RIGHT_CLICK | Verb.LONG_PRESS | Verb.HOVER:
            return _POINTED[verb](target)
        case Verb.KEY | Verb.OPEN | Verb.ANSWER:
            return _WORDED[verb](text)
        case _:
            return _PLAIN[verb]


def from_action(action: Action) -> GymAction:
    """A point of the action space for `action`, so that `to_action` gives it back (to float32)."""
    match action:
        case Drag(source, target):
            return _chosen(Verb.DRAG, source, to=target)
        case Scroll(target, dx, dy):
            return _chosen(Verb.SCROLL, target or Point(0.5, 0.5), scroll=(dx, dy))
        case Type(text, target) if not isinstance(target, Point):
            return _chosen(Verb.TYPE, target, text=text)
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            return _chosen(_VERB_OF[type(action)], target)
        case Key(text) | Open(text) | Answer(text):
            return _chosen(_VERB_OF[type(action)], text=text)
        case _:
            return _chosen(_unaimed(action))


def _unaimed(action: Action) -> Verb:
    match action:
        case Finish(FinishStatus.INFEASIBLE):
            return Verb.INFEASIBLE
        case Type() | Invalid():
            raise ConfigError(f"the action space has no place for {action}")
        case _:
            return _VERB_OF[type(action)]


_POINTED: dict[Verb, Callable[[Target], Action]] = {
    Verb.CLICK: Click,
    Verb.DOUBLE_CLICK: DoubleClick,
    Verb.RIGHT_CLICK: RightClick,
    Verb.LONG_PRESS: LongPress,
    Verb.HOVER: Hover,
}
_WORDED: dict[Verb, Callable[[str], Action]] = {Verb.KEY: Key, Verb.OPEN: Open, Verb.ANSWER: Answer}
_PLAIN: dict[Verb, Action] = {
    Verb.BACK: Back(),
    Verb.HOME: Home(),
    Verb.WAIT: Wait(_WAIT_S),
    Verb.FINISH: Finish(),
    Verb.INFEASIBLE: Finish(FinishStatus.INFEASIBLE),
}
_VERB_OF: dict[type[Action], Verb] = {
    Click: Verb.CLICK,
    DoubleClick: Verb.DOUBLE_CLICK,
    RightClick: Verb.RIGHT_CLICK,
    LongPress: Verb.LONG_PRESS,
    Hover: Verb.HOVER,
    Key: Verb.KEY,
    Open: Verb.OPEN,
    Answer: Verb.ANSWER,
    Back: Verb.BACK,
    Home: Verb.HOME,
    Wait: Verb.WAIT,
    Finish: Verb.FINISH,
}


def _target(element: int, point: npt.NDArray[np.float32]) -> Target:
    return ElementId(int(element)) if int(element) else Point(float(point[0]), float(point[1]))


def _chosen(
    verb: Verb,
    target: Target | None = None,
    *,
    to: Target | None = None,
    scroll: tuple[float, float] = (0.0, 0.0),
    text: str = "",
) -> GymAction:
    element, point = _split(target)
    to_element, to_point = _split(to)
    return {
        "verb": VERBS.index(verb),
        "element": element,
        "point": point,
        "to_element": to_element,
        "to_point": to_point,
        "scroll": np.array(scroll, np.float32),
        "text": text,
    }


def _split(target: Target | None) -> tuple[int, npt.NDArray[np.float32]]:
    match target:
        case None:
            return 0, np.zeros(2, np.float32)
        case Point(x, y):
            return 0, np.array((x, y), np.float32)
        case element:
            return int(element), np.zeros(2, np.float32)
