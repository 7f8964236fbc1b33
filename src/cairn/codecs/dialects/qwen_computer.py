"""Qwen's computer tool: `<tool_call>{"name": "computer_use", "arguments": {"action": …}}</tool_call>`.

A drag takes two calls in one answer, since the tool drags from where the pointer is: `mouse_move`, then
`left_click_drag`. Scrolls are in units of the image, positive upwards.
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
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Hover,
    Key,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
    Wait,
)
from cairn.data.coordinates import Frame
from cairn.data.observation import Observation

_TOOL = "computer_use"
_SHAPE = "answer with one call of computer_use between <tool_call> and </tool_call>"

_SYSTEM = """You operate a computer by mouse and keyboard to reach a goal. Each turn you see a screenshot and answer
with one tool call:
<tool_call>
{{"name": "computer_use", "arguments": {{"action": "left_click", "coordinate": [x, y]}}}}
</tool_call>
Coordinates go from [0, 0] at the top left to [{right}, {bottom}] at the bottom right. Actions and their arguments:
left_click, double_click, right_click, mouse_move (coordinate)
left_click_drag (coordinate), after a mouse_move in the same answer to where it starts
type (text) · key (keys, a list) · wait (time, in seconds)
scroll, hscroll (pixels, positive up or left; coordinate)
answer (text), where the goal is a question · terminate (status: success or failure)"""

_POINTED: Mapping[str, Callable[[Target], Action]] = {
    "left_click": Click,
    "double_click": DoubleClick,
    "triple_click": DoubleClick,
    "right_click": RightClick,
    "mouse_move": Hover,
}
_NAMES: Mapping[type[Action], str] = {
    Click: "left_click",
    DoubleClick: "double_click",
    RightClick: "right_click",
    Hover: "mouse_move",
}


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """One tool call, or the two of a drag."""
    match action:
        case Drag():
            ends = grammar.drag_ends(action, seen, frame)
            if ends is None:
                return None
            return f"{_said('mouse_move', ends[0])}\n{_said('left_click_drag', ends[1])}"
        case Click(target) | DoubleClick(target) | RightClick(target) | Hover(target):
            at = grammar.coordinates(target, seen, frame)
            return None if at is None else _said(_NAMES[type(action)], at)
        case Scroll():
            return _said_scroll(action, seen, frame)
        case _:
            arguments = _plain(action)
            return None if arguments is None else tool_call(_TOOL, arguments)


def _said(name: str, at: str) -> str:
    return tool_call(_TOOL, f'"action": "{name}", "coordinate": {at}')


def _said_scroll(action: Scroll, seen: Observation, frame: Frame) -> str | None:
    at = "" if action.target is None else grammar.coordinates(action.target, seen, frame)
    down = action.dx == 0
    steps = -frame.steps(action.dy if down else action.dx, down=down)
    if at is None or grammar.way_of(action) is None or steps == 0:
        return None
    where = f', "coordinate": {at}' if at else ""
    return tool_call(_TOOL, f'"action": "{"scroll" if down else "hscroll"}", "pixels": {steps}{where}')


def _plain(action: Action) -> str | None:
    match action:
        case Type(text, None):
            return f'"action": "type", "text": {grammar.quoted(text)}'
        case Key(keys):
            return f'"action": "key", "keys": [{", ".join(map(grammar.quoted, grammar.key_names(keys)))}]'
        case Wait(seconds):
            return f'"action": "wait", "time": {seconds:g}'
        case Answer(text):
            return f'"action": "answer", "text": {grammar.quoted(text)}'
        case Finish(status):
            word = "success" if status is FinishStatus.DONE else "failure"
            return f'"action": "terminate", "status": "{word}"'
        case _:
            return None


def _read(text: str, frame: Frame) -> Action:
    first, *others = read_tool_calls(text, _TOOL)
    if others:
        return _read_drag(first, others[0], frame)
    name = first.get("action")
    if name == "left_click_drag":
        raise ValueError("a drag begins with a mouse_move in the same answer")
    if isinstance(name, str) and name in _POINTED:
        return _POINTED[name](_at(first, frame))
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise ValueError(f"there is no action {str(name)[:20]!r}")
    return reader(first, frame)


def _read_drag(first: Mapping[str, Value], second: Mapping[str, Value], frame: Frame) -> Action:
    if (first.get("action"), second.get("action")) != ("mouse_move", "left_click_drag"):
        raise ValueError("there is more than one action")
    return Drag(_at(first, frame), _at(second, frame))


def _at(arguments: Mapping[str, Value], frame: Frame) -> Point:
    return grammar.point(arguments.get("coordinate"), frame)


def _scroll(arguments: Mapping[str, Value], frame: Frame, *, down: bool) -> Action:
    moved = frame.share(-grammar.number(arguments.get("pixels")), down=down)
    target = _at(arguments, frame) if arguments.get("coordinate") is not None else None
    return Scroll(target, 0.0, moved) if down else Scroll(target, moved, 0.0)


def _keys(arguments: Mapping[str, Value]) -> Action:
    keys = arguments.get("keys")
    return Key(grammar.chord([grammar.text_of(k) for k in keys] if isinstance(keys, list) else [grammar.text_of(keys)]))


_READERS: Mapping[str, Callable[[Mapping[str, Value], Frame], Action]] = {
    "type": lambda arguments, _: Type(grammar.text_of(arguments.get("text"))),
    "key": lambda arguments, _: _keys(arguments),
    "scroll": lambda arguments, frame: _scroll(arguments, frame, down=True),
    "hscroll": lambda arguments, frame: _scroll(arguments, frame, down=False),
    "wait": lambda arguments, _: Wait(grammar.seconds(arguments.get("time"))),
    "answer": lambda arguments, _: Answer(grammar.text_of(arguments.get("text"))),
    "terminate": lambda arguments, _: Finish(grammar.status_of(arguments.get("status"))),
}


GRAMMAR = Grammar(
    system=_SYSTEM,
    say=say,
    read=grammar.reading(_read, _SHAPE),
    parts=partial(tagged, action="tool_call", most=2),  # a drag has two
)
