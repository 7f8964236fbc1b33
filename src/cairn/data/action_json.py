"""Actions as JSON, tagged with their kind."""

import json

from pydantic import TypeAdapter

from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    Home,
    Hover,
    Invalid,
    Key,
    LongPress,
    Open,
    RightClick,
    Scroll,
    Type,
    Wait,
)

_ADAPTERS: dict[str, TypeAdapter[Action]] = {
    "click": TypeAdapter(Click),
    "double_click": TypeAdapter(DoubleClick),
    "right_click": TypeAdapter(RightClick),
    "long_press": TypeAdapter(LongPress),
    "hover": TypeAdapter(Hover),
    "drag": TypeAdapter(Drag),
    "scroll": TypeAdapter(Scroll),
    "type": TypeAdapter(Type),
    "key": TypeAdapter(Key),
    "open": TypeAdapter(Open),
    "back": TypeAdapter(Back),
    "home": TypeAdapter(Home),
    "wait": TypeAdapter(Wait),
    "answer": TypeAdapter(Answer),
    "finish": TypeAdapter(Finish),
    "invalid": TypeAdapter(Invalid),
}
_KINDS: dict[type[Action], str] = {
    Click: "click",
    DoubleClick: "double_click",
    RightClick: "right_click",
    LongPress: "long_press",
    Hover: "hover",
    Drag: "drag",
    Scroll: "scroll",
    Type: "type",
    Key: "key",
    Open: "open",
    Back: "back",
    Home: "home",
    Wait: "wait",
    Answer: "answer",
    Finish: "finish",
    Invalid: "invalid",
}


def kind_of(action: Action) -> str:
    """The tag of an action, such as `double_click`."""
    return _KINDS[type(action)]


def dump_action(action: Action) -> str:
    """The action's fields; its kind goes beside them."""
    return _ADAPTERS[kind_of(action)].dump_json(action).decode()


def load_action(kind: str, text: str) -> Action:
    """What `dump_action` wrote."""
    return _ADAPTERS[kind].validate_json(text)


def dump_tagged(action: Action) -> str:
    """The action with its kind, where there is no place beside it."""
    return json.dumps([kind_of(action), dump_action(action)])


def load_tagged(text: str) -> Action:
    """What `dump_tagged` wrote."""
    kind, fields = json.loads(text)
    return load_action(kind, fields)
