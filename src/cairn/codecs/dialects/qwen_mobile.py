"""Qwen's phone tool: `<tool_call>{"name": "mobile_use", "arguments": {"action": …}}</tool_call>`.

A swipe is a scroll by the way that the finger goes, from `coordinate` to `coordinate2`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from cairn.codecs.answer_parts import tagged
from cairn.codecs.dialects import grammar
from cairn.codecs.dialects.grammar import Grammar
from cairn.codecs.dialects.literals import Value
from cairn.codecs.dialects.tool_calls import read_tool_calls, tool_call
from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    Finish,
    FinishStatus,
    Home,
    Key,
    LongPress,
    Open,
    Point,
    Scroll,
    Type,
    Wait,
)
from cairn.data.coordinates import Frame
from cairn.data.observation import Observation

_TOOL = "mobile_use"
_SHAPE = "answer with one call of mobile_use between <tool_call> and </tool_call>"

ACTIONS = """Coordinates go from [0, 0] at the top left to [{right}, {bottom}] at the bottom right. Actions and their
arguments:
click (coordinate) · long_press (coordinate, time in seconds)
swipe (coordinate, where the finger starts; coordinate2, where it ends)
type (text) · open (text, an app's name) · wait (time, in seconds)
system_button (button: Back, Home or Enter) · key (text)
answer (text), where the goal is a question · terminate (status: success or failure)"""
"""Of a system prompt: what the tool takes."""

_SYSTEM = (
    """You operate a phone by touch to reach a goal. Each turn you see a screenshot and answer with one tool call:
<tool_call>
{{"name": "mobile_use", "arguments": {{"action": "click", "coordinate": [x, y]}}}}
</tool_call>
"""
    + ACTIONS
)
_WORDED: Mapping[type[Action], str] = {Type: "type", Key: "key", Open: "open", Answer: "answer"}
_BUTTONS: Mapping[Action, str] = {Back(): "Back", Home(): "Home", Key("Enter"): "Enter"}


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """One tool call."""
    arguments = _arguments(action, seen, frame)
    return None if arguments is None else tool_call(_TOOL, arguments)


def _arguments(action: Action, seen: Observation, frame: Frame) -> str | None:
    match action:
        case Click(target):
            at = grammar.coordinates(target, seen, frame)
            return None if at is None else f'"action": "click", "coordinate": {at}'
        case LongPress(target):
            at = grammar.coordinates(target, seen, frame)
            return None if at is None else f'"action": "long_press", "coordinate": {at}, "time": 1'
        case Scroll():
            swipe = grammar.swipe_of(action, seen, frame)
            if swipe is None:
                return None
            return f'"action": "swipe", "coordinate": {swipe[0]}, "coordinate2": {swipe[1]}'
        case _:
            return _plain(action)


def _plain(action: Action) -> str | None:
    match action:
        case Back() | Home() | Key("Enter"):
            return f'"action": "system_button", "button": "{_BUTTONS[action]}"'
        case Type(text, None) | Key(text) | Open(text) | Answer(text):
            return f'"action": "{_WORDED[type(action)]}", "text": {grammar.quoted(text)}'
        case Wait(seconds):
            return f'"action": "wait", "time": {seconds:g}'
        case Finish(status):
            word = "success" if status is FinishStatus.DONE else "failure"
            return f'"action": "terminate", "status": "{word}"'
        case _:
            return None


def read_call(text: str, frame: Frame) -> Action:
    """The action of the only call in `text`; `ValueError` where it holds none."""
    first, *others = read_tool_calls(text, _TOOL)
    if others:
        raise ValueError("there is more than one action")
    name = first.get("action")
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise ValueError(f"there is no action {str(name)[:20]!r}")
    return reader(first, frame)


def _at(arguments: Mapping[str, Value], frame: Frame, name: str = "coordinate") -> Point:
    return grammar.point(arguments.get(name), frame)


def _button(arguments: Mapping[str, Value]) -> Action:
    said = grammar.text_of(arguments.get("button")).casefold()
    for action, name in _BUTTONS.items():
        if name.casefold() == said:
            return action
    raise ValueError(f"there is no button {said[:20]!r}")


_READERS: Mapping[str, Callable[[Mapping[str, Value], Frame], Action]] = {
    "click": lambda arguments, frame: Click(_at(arguments, frame)),
    "long_press": lambda arguments, frame: LongPress(_at(arguments, frame)),
    "swipe": lambda arguments, frame: grammar.swiped(_at(arguments, frame), _at(arguments, frame, "coordinate2")),
    "type": lambda arguments, _: Type(grammar.text_of(arguments.get("text"))),
    "key": lambda arguments, _: Key(grammar.chord([grammar.text_of(arguments.get("text"))])),
    "open": lambda arguments, _: Open(grammar.text_of(arguments.get("text"))),
    "wait": lambda arguments, _: Wait(grammar.seconds(arguments.get("time"))),
    "system_button": lambda arguments, _: _button(arguments),
    "answer": lambda arguments, _: Answer(grammar.text_of(arguments.get("text"))),
    "terminate": lambda arguments, _: Finish(grammar.status_of(arguments.get("status"))),
}


GRAMMAR = Grammar(
    system=_SYSTEM, say=say, read=grammar.reading(read_call, _SHAPE), parts=partial(tagged, action="tool_call")
)
