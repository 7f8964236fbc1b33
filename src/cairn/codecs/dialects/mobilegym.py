"""MobileGym's actions: `<think>…</think><answer>{"action": "CLICK", "point": [x, y]}</answer>` (arXiv:2605.26114).

SWIPE scrolls, as a finger does that leaves the screen at speed; DRAG carries something along. Its own coordinates are
thousandths of the screen.
"""

from collections.abc import Callable, Mapping
from functools import partial

from cairn.codecs.answer_parts import NO_THOUGHT, tagged
from cairn.codecs.dialects import grammar
from cairn.codecs.dialects.grammar import Grammar
from cairn.codecs.dialects.literals import Value, read_object
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

_SHAPE = 'answer with <think>…</think><answer>{"action": …}</answer>'

_THINK = "First think, then answer:\n<think>your thoughts</think>"
_ACT = "Answer at once:\n"

_SYSTEM = """You operate a phone by touch to reach a goal. Each turn you see a screenshot. First think, then answer:
<think>your thoughts</think><answer>{{"action": "CLICK", "point": [x, y]}}</answer>
Points go from [0, 0] at the top left to [{right}, {bottom}] at the bottom right. Actions and what they take:
CLICK, DOUBLE_TAP, LONG_PRESS (point) · TYPE (value; point of the field, where it has no focus)
SWIPE, DRAG (point1, where the finger starts; point2, where it ends)
BACK · HOME · ENTER · WAIT (value, in seconds) · AWAKE (value, an app)
ANSWER (value), where the goal is a question · COMPLETE (return) · ABORT (value, why)"""

_NAMES: Mapping[type[Action], str] = {Click: "CLICK", DoubleClick: "DOUBLE_TAP", LongPress: "LONG_PRESS"}
_ALONE: Mapping[str, Action] = {
    "BACK": Back(),
    "HOME": Home(),
    "ENTER": Key("Enter"),
    "COMPLETE": Finish(),
    "FINISH": Finish(),
    "ABORT": Finish(FinishStatus.INFEASIBLE),
}


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """The answer after an empty thought: experts give none."""
    fields = _fields(action, seen, frame)
    return None if fields is None else f"{NO_THOUGHT}<answer>{{{fields}}}</answer>"


def _fields(action: Action, seen: Observation, frame: Frame) -> str | None:
    match action:
        case Click(target) | DoubleClick(target) | LongPress(target):
            at = grammar.coordinates(target, seen, frame)
            return None if at is None else f'"action": "{_NAMES[type(action)]}", "point": {at}'
        case Scroll():
            ends = grammar.swipe_of(action, seen, frame)
            return None if ends is None else f'"action": "SWIPE", "point1": {ends[0]}, "point2": {ends[1]}'
        case Drag():
            ends = grammar.drag_ends(action, seen, frame)
            return None if ends is None else f'"action": "DRAG", "point1": {ends[0]}, "point2": {ends[1]}'
        case Type(text, target):
            at = "" if target is None else grammar.coordinates(target, seen, frame)
            where = f', "point": {at}, "clear": true' if at else ""
            return None if at is None else f'"action": "TYPE", "value": {grammar.quoted(text)}{where}'
        case _:
            return _plain(action)


def _plain(action: Action) -> str | None:
    match action:
        case Wait(seconds):
            return f'"action": "WAIT", "value": {seconds:g}'
        case Open(what):
            return f'"action": "AWAKE", "value": {grammar.quoted(what)}'
        case Answer(text):
            return f'"action": "ANSWER", "value": {grammar.quoted(text)}'
        case Finish(FinishStatus.DONE):
            return '"action": "COMPLETE", "return": ""'
        case _:
            name = next((name for name, alone in _ALONE.items() if alone == action), None)
            return None if name is None else f'"action": "{name}"'


def _read(text: str, frame: Frame) -> Action:
    said = grammar.after_thought(text)
    fields = read_object(grammar.between(said, "<answer>", "</answer>"))
    name = _SYNONYMS.get(upper := grammar.text_of(fields.get("action")).upper(), upper)
    if name in _ALONE:
        return _ALONE[name]
    reader = _READERS.get(name)
    if reader is None:
        raise ValueError(f"there is no action {name[:20]!r}")
    return reader(fields, frame)


_SYNONYMS: Mapping[str, str] = {
    "TAP": "CLICK",
    "DOUBLETAP": "DOUBLE_TAP",
    "LONGPRESS": "LONG_PRESS",
    "SLIDE": "SWIPE",
    "LAUNCH": "AWAKE",
}


def _first(fields: Mapping[str, Value], *names: str) -> Value:
    return next((fields[name] for name in names if name in fields), None)


def _ends(fields: Mapping[str, Value], frame: Frame) -> tuple[Point, Point]:
    start = grammar.point(_first(fields, "point1", "start"), frame)
    return start, grammar.point(_first(fields, "point2", "end"), frame)


def _type(fields: Mapping[str, Value], frame: Frame) -> Action:
    where = fields.get("point")
    text = grammar.text_of(_first(fields, "value", "text"))
    return Type(text, None if where is None else grammar.point(where, frame))


_READERS: Mapping[str, Callable[[Mapping[str, Value], Frame], Action]] = {
    "CLICK": lambda fields, frame: Click(grammar.point(fields.get("point"), frame)),
    "DOUBLE_TAP": lambda fields, frame: DoubleClick(grammar.point(fields.get("point"), frame)),
    "LONG_PRESS": lambda fields, frame: LongPress(grammar.point(fields.get("point"), frame)),
    "SWIPE": lambda fields, frame: grammar.swiped(*_ends(fields, frame)),
    "DRAG": lambda fields, frame: Drag(*_ends(fields, frame)),
    "TYPE": _type,
    "WAIT": lambda fields, _: Wait(grammar.seconds(_first(fields, "value", "duration"))),
    "AWAKE": lambda fields, _: Open(grammar.text_of(_first(fields, "value", "app"))),
    "ANSWER": lambda fields, _: Answer(grammar.text_of(_first(fields, "value", "text"))),
}


GRAMMAR = grammar.with_bare(
    Grammar(
        system=_SYSTEM,
        say=say,
        read=grammar.reading(_read, _SHAPE),
        parts=partial(tagged, action="answer"),
        thinks=True,
        fills=True,
    ),
    ask=_THINK,
    instead=_ACT,
)
