"""BrowserGym's actions: calls that name elements, `click('12')`, `fill('12', 'text')`, or places, `mouse_click(x, y)`.

The page is shown as numbered elements beside the screenshot; a number in quotes is that element. Places and scrolls are
in the codec's coordinates.
"""

from collections.abc import Callable, Mapping

from cairn.codecs.answer_parts import single
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
    Hover,
    Key,
    Open,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
    Wait,
)
from cairn.data.coordinates import Frame
from cairn.data.ids import ElementId
from cairn.data.observation import Observation

_SHAPE = "answer with one call, such as click('12')"
_MILLISECONDS = 1000

_SYSTEM = """You operate web pages to reach a goal. Each turn you see a screenshot and the page's elements with their
numbers in brackets, and answer with one call:
click('12') · dblclick('12') · click('12', button='right') · hover('12') · fill('12', 'text')
select_option('12', 'option') · press('12', 'Enter') · keyboard_press('Control+a') · keyboard_type('text')
drag_and_drop('12', '15') · scroll(dx, dy), positive right and down
mouse_click(x, y) · mouse_dblclick(x, y) · mouse_move(x, y) · mouse_drag_and_drop(x, y, x, y), with places from
(0, 0) at the top left to ({right}, {bottom}) at the bottom right
goto('address') · go_back() · noop(1000) · send_msg_to_user('the answer') · report_infeasible('why')"""


def say(action: Action, seen: Observation, frame: Frame) -> str | None:
    """One call; elements by number, points by place."""
    del seen
    match action:
        case Click(target) | DoubleClick(target) | Hover(target):
            return _pointed(*_NAMES[type(action)], target, frame)
        case RightClick(target):
            return _right(target, frame)
        case Drag(source, target):
            return _dragged(source, target, frame)
        case Scroll() | Type():
            return _at_target(action, frame)
        case _:
            return _plain(action)


_NAMES: Mapping[type[Action], tuple[str, str]] = {
    Click: ("click", "mouse_click"),
    DoubleClick: ("dblclick", "mouse_dblclick"),
    Hover: ("hover", "mouse_move"),
}


def _pointed(by_number: str, by_place: str, target: Target, frame: Frame) -> str:
    if isinstance(target, Point):
        return f"{by_place}({', '.join(frame.say(target))})"
    return f"{by_number}('{target}')"


def _right(target: Target, frame: Frame) -> str:
    if isinstance(target, Point):
        return f"mouse_click({', '.join(frame.say(target))}, button='right')"
    return f"click('{target}', button='right')"


def _dragged(source: Target, target: Target, frame: Frame) -> str | None:
    match source, target:
        case Point(), Point():
            return f"mouse_drag_and_drop({', '.join([*frame.say(source), *frame.say(target)])})"
        case int(), int():
            return f"drag_and_drop('{source}', '{target}')"
        case _:
            return None


def _at_target(action: Scroll | Type, frame: Frame) -> str | None:
    match action:
        case Scroll(None, dx, dy):
            across, down = frame.steps(dx, down=False), frame.steps(dy, down=True)
            return f"scroll({across}, {down})" if across or down else None
        case Type(text, None):
            return f"keyboard_type({grammar.single_quoted(text)})"
        case Type(text, int() as element):
            return f"fill('{element}', {grammar.single_quoted(text)})"
        case _:
            return None


def _plain(action: Action) -> str | None:
    match action:
        case Key(keys):
            return f"keyboard_press({grammar.single_quoted(keys)})"
        case Open(what):
            return f"goto({grammar.single_quoted(what)})"
        case Wait(seconds):
            return f"noop({round(_MILLISECONDS * seconds)})"
        case Answer(text):
            return f"send_msg_to_user({grammar.single_quoted(text)})"
        case _:
            return _ALONE.get(action)


_ALONE: Mapping[Action, str] = {Back(): "go_back()", Finish(FinishStatus.INFEASIBLE): "report_infeasible('')"}


def _read(text: str, frame: Frame) -> Action:
    said = grammar.after_thought(text)
    if "<action>" in said:
        said = grammar.between(said, "<action>", "</action>")
    call = read_call(said.strip().strip("`").strip())
    if call.name in _BARE:
        return _BARE[call.name]
    reader = _READERS.get(call.name)
    if reader is None:
        raise ValueError(f"there is no call {call.name[:20]!r}")
    return reader(call, frame)


def _argument(call: Call, index: int, name: str) -> Value:
    if index < len(call.positional):
        return call.positional[index]
    if name not in call.named:
        raise ValueError(f"{call.name} wants {name}")
    return call.named[name]


def _element(call: Call, index: int = 0, name: str = "bid") -> ElementId:
    value = _argument(call, index, name)
    said = str(value).strip().strip("[]")
    if isinstance(value, bool) or not (said.isascii() and said.isdecimal() and len(said) <= 6):
        raise ValueError(f"an element is a number in quotes, not {str(value)[:20]!r}")
    return ElementId(int(said))


def _place(call: Call, frame: Frame, first: int = 0, names: tuple[str, str] = ("x", "y")) -> Point:
    across, down = (grammar.number(_argument(call, first + i, name)) for i, name in enumerate(names))
    return grammar.point([across, down], frame)


def _clicked(call: Call, target: Target, at: int) -> Action:
    button = call.named.get("button", call.positional[at] if at < len(call.positional) else "left")
    match button:
        case "left":
            return Click(target)
        case "right":
            return RightClick(target)
        case _:
            raise ValueError(f"a button is 'left' or 'right', not {str(button)[:20]!r}")


def _scroll(call: Call, frame: Frame) -> Action:
    dx, dy = (grammar.number(_argument(call, i, name)) for i, name in enumerate(("delta_x", "delta_y")))
    return Scroll(None, frame.share(dx, down=False), frame.share(dy, down=True))


def _dropped(call: Call, frame: Frame) -> Action:
    return Drag(_place(call, frame, 0, ("from_x", "from_y")), _place(call, frame, 2, ("to_x", "to_y")))


def _option(call: Call) -> Action:
    chosen = _argument(call, 1, "options")
    if isinstance(chosen, list):
        if len(chosen) != 1:
            raise ValueError("one option can be chosen")
        chosen = chosen[0]
    return Type(grammar.text_of(chosen), _element(call))


def _text(call: Call, index: int, name: str) -> str:
    return grammar.text_of(_argument(call, index, name))


def _pressed(call: Call) -> Action:
    _element(call)  # the page's focus decides where the key goes
    return Key(_text(call, 1, "key_comb"))


_BARE: Mapping[str, Action] = {"go_back": Back(), "report_infeasible": Finish(FinishStatus.INFEASIBLE)}
_READERS: Mapping[str, Callable[[Call, Frame], Action]] = {
    "click": lambda call, _: _clicked(call, _element(call), 1),
    "dblclick": lambda call, _: DoubleClick(_element(call)),
    "hover": lambda call, _: Hover(_element(call)),
    "fill": lambda call, _: Type(_text(call, 1, "value"), _element(call)),
    "select_option": lambda call, _: _option(call),
    "press": lambda call, _: _pressed(call),
    "keyboard_press": lambda call, _: Key(_text(call, 0, "key")),
    "keyboard_type": lambda call, _: Type(_text(call, 0, "text")),
    "keyboard_insert_text": lambda call, _: Type(_text(call, 0, "text")),
    "drag_and_drop": lambda call, _: Drag(_element(call, 0, "from_bid"), _element(call, 1, "to_bid")),
    "scroll": _scroll,
    "mouse_click": lambda call, frame: _clicked(call, _place(call, frame), 2),
    "mouse_dblclick": lambda call, frame: DoubleClick(_place(call, frame)),
    "mouse_move": lambda call, frame: Hover(_place(call, frame)),
    "mouse_drag_and_drop": _dropped,
    "goto": lambda call, _: Open(_text(call, 0, "url")),
    "noop": lambda call, _: Wait(grammar.number(call.positional[0]) / _MILLISECONDS if call.positional else 1.0),
    "send_msg_to_user": lambda call, _: Answer(_text(call, 0, "text")),
}

GRAMMAR = Grammar(
    system=_SYSTEM, say=say, read=grammar.reading(_read, _SHAPE), parts=single, by_number=True, fills=True
)
