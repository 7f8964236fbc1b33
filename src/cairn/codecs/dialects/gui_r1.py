"""GUI-R1: `<think>…</think><answer>[{'action': …, 'point': [x, y], 'input_text': …}]</answer>` (arXiv:2504.10458)."""

from collections.abc import Callable, Mapping
from functools import partial

from cairn.codecs.answer_parts import NO_THOUGHT, tagged
from cairn.codecs.dialects import grammar
from cairn.codecs.dialects.grammar import Grammar
from cairn.codecs.dialects.literals import Value, read_value
from cairn.data.action import (
    Action,
    Answer,
    Back,
    Click,
    DoubleClick,
    Finish,
    FinishStatus,
    Home,
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

_SHAPE = "answer with <think>…</think><answer>[{'action': …, 'point': [x, y], 'input_text': …}]</answer>"
_NOWHERE = "[-100, -100]"
_NOTHING = "no input text"

_THINK = "First think, then\nanswer:\n<think>your thoughts</think>"
_ACT = "Answer at\nonce:\n"

_SYSTEM = """You operate a graphical interface to reach a goal. Each turn you see a screenshot. First think, then
answer:
<think>your thoughts</think><answer>[{{'action': 'click', 'point': [x, y], 'input_text': 'no input text'}}]</answer>
Points go from [0, 0] at the top left to [{right}, {bottom}] at the bottom right; an action without one has
[-100, -100], and one without text has 'no input text'. Actions:
click, doubleclick, rightclick, moveto, long_press (point) · type, open_app, answer (input_text)
scroll (point, input_text: up, down, left or right) · hotkey (input_text, such as ctrl c) · enter
press_back · press_home · wait · complete · impossible"""

_POINTED: Mapping[str, Callable[[Target], Action]] = {
    "click": Click,
    "select": Click,
    "doubleclick": DoubleClick,
    "rightclick": RightClick,
    "long_press": LongPress,
}
_NAMES: Mapping[type[Action], str] = {
    Click: "click",
    DoubleClick: "doubleclick",
    RightClick: "rightclick",
    LongPress: "long_press",
}
_ALONE: Mapping[str, Action] = {
    "enter": Key("Enter"),
    "press_back": Back(),
    "press_home": Home(),
    "wait": Wait(1.0),
    "complete": Finish(),
    "impossible": Finish(FinishStatus.INFEASIBLE),
}


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """The answer after an empty thought: experts give none."""
    said = _said(action, seen, frame)
    if said is None:
        return None
    name, at, text = said
    answer = f"[{{'action': '{name}', 'point': {at}, 'input_text': {grammar.single_quoted(text)}}}]"
    return f"{NO_THOUGHT}<answer>{answer}</answer>"


def _said(action: Action, seen: Observation, frame: Frame) -> tuple[str, str, str] | None:
    match action:
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target):
            at = grammar.coordinates(target, seen, frame)
            return None if at is None else (_NAMES[type(action)], at, _NOTHING)
        case Scroll(target):
            at = _NOWHERE if target is None else grammar.coordinates(target, seen, frame)
            way = grammar.way_of(action)
            return None if at is None or way is None else ("scroll", at, way)
        case Type(text, None):
            return "type", _NOWHERE, text
        case Open(what):
            return "open_app", _NOWHERE, what
        case Answer(text):
            return "answer", _NOWHERE, text
        case _:
            return _plain(action)


def _plain(action: Action) -> tuple[str, str, str] | None:
    name = next((name for name, alone in _ALONE.items() if alone == action), None)
    match action:
        case _ if name is not None:
            return name, _NOWHERE, _NOTHING
        case Key(keys):
            return "hotkey", _NOWHERE, " ".join(grammar.key_names(keys))
        case Wait():
            return "wait", _NOWHERE, _NOTHING
        case _:
            return None


def _read(text: str, frame: Frame) -> Action:
    value = read_value(grammar.between(grammar.after_thought(text), "<answer>", "</answer>"))
    steps = value if isinstance(value, list) else [value]
    if len(steps) != 1 or not isinstance(steps[0], dict):
        raise ValueError("the list holds one action in braces")
    step = steps[0]
    name = grammar.text_of(step.get("action"))
    if name in _ALONE:
        return _ALONE[name]
    if name in _POINTED:
        return _POINTED[name](grammar.point(step.get("point"), frame))
    if name not in _WORDED:
        raise ValueError(f"there is no action {name[:20]!r}")
    if name == "scroll":
        return grammar.scrolled(step.get("input_text"), _place(step.get("point"), frame))
    return _WORDED[name](grammar.text_of(step.get("input_text")))


def _place(value: Value, frame: Frame) -> Point | None:
    """A point that may be left out, as -100 says."""
    if value is None or min(grammar.pair(value)) < 0:
        return None
    return grammar.point(value, frame)


_WORDED: Mapping[str, Callable[[str], Action]] = {
    "scroll": lambda text: grammar.scrolled(text, None),
    "type": Type,
    "open_app": Open,
    "answer": Answer,
    "hotkey": lambda text: Key(grammar.chord(text.replace("+", " ").split(" "))),
}


GRAMMAR = grammar.with_bare(
    Grammar(
        system=_SYSTEM,
        say=say,
        read=grammar.reading(_read, _SHAPE),
        parts=partial(tagged, action="answer"),
        thinks=True,
    ),
    ask=_THINK,
    instead=_ACT,
)
