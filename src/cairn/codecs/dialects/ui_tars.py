"""UI-TARS: a thought in words, then one call such as `click(start_box='(x,y)')` (arXiv:2501.12326).

Both its generations are read: the first counts thousandths of the screen, the second pixels of the resized image, which
is the codec's coordinate space; boxes of four numbers and `point=` are taken by their middle.
"""

from collections.abc import Callable, Mapping

from cairn.codecs.answer_parts import labelled
from cairn.codecs.dialects import grammar
from cairn.codecs.dialects.grammar import Grammar
from cairn.codecs.dialects.literals import Call, Value, read_call
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
from cairn.data.coordinates import Frame
from cairn.data.observation import Observation

_SHAPE = "answer with a line 'Thought: …' and a line 'Action: ' with one call"

_SYSTEM = """You operate a graphical interface to reach a goal. Each turn you see a screenshot and say one action.
Answer in two lines:
Thought: why, in a sentence
Action: one call
Calls, with places as '(x,y)', from (0,0) at the top left to ({right},{bottom}) at the bottom right:
click(start_box='(x,y)')
left_double(start_box='(x,y)')
right_single(start_box='(x,y)')
hover(start_box='(x,y)')
long_press(start_box='(x,y)')
drag(start_box='(x,y)', end_box='(x,y)')
scroll(start_box='(x,y)', direction='up, down, left or right')
type(content='text')
hotkey(key='ctrl c')
open_app(app_name='name')
press_back()
press_home()
wait()
finished(content='the answer, where one is asked for')
call_user(), where the goal cannot be reached"""

_POINTED: Mapping[str, Callable[[Target], Action]] = {
    "click": Click,
    "left_single": Click,
    "left_double": DoubleClick,
    "right_single": RightClick,
    "long_press": LongPress,
    "hover": Hover,
}
_NAMES: Mapping[type[Action], str] = {
    Click: "click",
    DoubleClick: "left_double",
    RightClick: "right_single",
    LongPress: "long_press",
    Hover: "hover",
}
_PAUSE = 5.0
"""Seconds of a `wait()`, as published."""


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """`Action: …`; an expert gives no thought."""
    call = _call(action, seen, frame)
    return None if call is None else f"Action: {call}"


def _call(action: Action, seen: Observation, frame: Frame) -> str | None:
    match action:
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            box = _box(target, seen, frame)
            return None if box is None else f"{_NAMES[type(action)]}(start_box={box})"
        case Drag(source, target):
            start, end = _box(source, seen, frame), _box(target, seen, frame)
            return None if start is None or end is None else f"drag(start_box={start}, end_box={end})"
        case Scroll(target):
            box = _box(Point(0.5, 0.5) if target is None else target, seen, frame)
            way = grammar.way_of(action)
            return None if box is None or way is None else f"scroll(start_box={box}, direction='{way}')"
        case _:
            return _plain(action)


def _plain(action: Action) -> str | None:
    match action:
        case Type(text, None):
            return f"type(content={grammar.single_quoted(text)})"
        case Key(keys):
            return f"hotkey(key={grammar.single_quoted(' '.join(grammar.key_names(keys)))})"
        case Open(what):
            return f"open_app(app_name={grammar.single_quoted(what)})"
        case Answer(text):
            return f"finished(content={grammar.single_quoted(text)})"
        case Wait():
            return "wait()"
        case _:
            return _ALONE.get(action)


_ALONE: Mapping[Action, str] = {
    Back(): "press_back()",
    Home(): "press_home()",
    Finish(): "finished()",
    Finish(FinishStatus.INFEASIBLE): "call_user()",
}


def _box(target: Target, seen: Observation, frame: Frame) -> str | None:
    at = grammar.place(target, seen)
    return None if at is None else f"'({','.join(frame.say(at))})'"


def _read(text: str, frame: Frame) -> Action:
    before, mark, said = text.rpartition("Action:")
    if not mark or "Action:" in before:
        raise ValueError("there is no action" if not mark else "there is more than one action")
    call = read_call(said.strip())
    if call.name in _POINTED:
        return _POINTED[call.name](_at(call, frame, "start_box", "point", "box"))
    if call.name in _BARE:
        return _BARE[call.name]
    reader = _READERS.get(call.name)
    if reader is None:
        raise ValueError(f"there is no call {call.name[:20]!r}")
    return reader(call, frame)


def _at(call: Call, frame: Frame, *names: str) -> Point:
    value = _argument(call, *names)
    if value is None:
        raise ValueError(f"{call.name} wants {names[0]}='(x,y)'")
    return grammar.point(value, frame)


def _argument(call: Call, *names: str) -> Value:
    given = [call.named[name] for name in names if name in call.named]
    return given[0] if given else next(iter(call.positional), None)


def _drag(call: Call, frame: Frame) -> Action:
    return Drag(_at(call, frame, "start_box", "start_point"), _at(call, frame, "end_box", "end_point"))


def _scroll(call: Call, frame: Frame) -> Action:
    where = call.named.get("start_box", call.named.get("point"))
    return grammar.scrolled(call.named.get("direction"), None if where is None else grammar.point(where, frame))


def _finished(call: Call, frame: Frame) -> Action:
    del frame
    said = _argument(call, "content")
    return Finish() if said in {None, ""} else Answer(grammar.text_of(said))


_BARE: Mapping[str, Action] = {
    "press_back": Back(),
    "press_home": Home(),
    "wait": Wait(_PAUSE),
    "call_user": Finish(FinishStatus.INFEASIBLE),
}
_READERS: Mapping[str, Callable[[Call, Frame], Action]] = {
    "drag": _drag,
    "scroll": _scroll,
    "type": lambda call, _: Type(grammar.text_of(_argument(call, "content"))),
    "hotkey": lambda call, _: Key(grammar.chord(grammar.text_of(_argument(call, "key")).replace("+", " ").split(" "))),
    "open_app": lambda call, _: Open(grammar.text_of(_argument(call, "app_name"))),
    "finished": _finished,
}

GRAMMAR = Grammar(system=_SYSTEM, say=say, read=grammar.reading(_read, _SHAPE), parts=labelled, thinks=True)
