"""What may undo an action that was wrong: candidates, read off what the action changed. Pure; trying them decides.

InfiGUI-R1 (arXiv:2504.14239) has one predefined escape, a phone's back button. Pages have many: a section is closed as
it was opened, a tab is left for the one before, a field is given back what it held.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cairn.data.action import (
    Action,
    Back,
    Click,
    DoubleClick,
    Drag,
    Home,
    Hover,
    Key,
    LongPress,
    RightClick,
    Scroll,
    Type,
)
from cairn.data.matching import element_under
from cairn.data.observation import Element, Observation

Escape = tuple[Action, ...]
"""Actions one after the other; each names elements of the page that it was found on, which is the first one's."""

_MARKS = frozenset({"checked", "selected", "expanded"})
_WAYS_OUT = frozenset({"cancel", "close", "back", "return", "dismiss", "undo", "no", "x", "\N{MULTIPLICATION SIGN}"})
_FOCUS = "focused"


def same_page(one: Observation, other: Observation, *, focus: bool) -> bool:
    """Whether both show the same things in the same places; without `focus`, wherever the keyboard's input goes."""
    if one.digest == other.digest:
        return True
    if focus or one.url != other.url or len(one.elements) != len(other.elements):
        return False
    return all(_unfocused(a) == _unfocused(b) for a, b in zip(one.elements, other.elements, strict=True))


def needs_focus(action: Action) -> bool:
    """Whether an action goes wherever the focus is."""
    return isinstance(action, Key) or (isinstance(action, Type) and action.target is None)


def escapes(before: Observation, wrong: Action, after: Observation) -> Iterator[Escape]:
    """What may lead from `after` back to `before`, the likeliest first, without repetition."""
    known: set[Escape] = set()
    for escape in _candidates(before, wrong, after):
        if escape not in known:
            known.add(escape)
            yield escape


def _candidates(before: Observation, wrong: Action, after: Observation) -> Iterator[Escape]:
    yield from _inverse(before, wrong, after)
    for element in (*_marked_less(before, after), *_marked_less(after, before)):
        there = _counterpart(element, after)
        if there is not None:
            yield (Click(there.id),)
    fresh = [e for e in after.elements if e.interactive and _counterpart(e, before) is None]
    out = [e for e in fresh if e.label.strip().casefold() in _WAYS_OUT]
    yield from ((Click(element.id),) for element in out)
    yield (Key("Escape"),)
    yield (Back(),)
    yield from ((Click(element.id),) for element in fresh)
    yield from ((Click(element.id),) for element in after.elements if element.interactive)  # what counts up, and down


def _inverse(before: Observation, wrong: Action, after: Observation) -> Iterator[Escape]:
    match wrong:
        case Scroll(target, dx, dy):
            yield (Scroll(target, -dx, -dy),)
        case Drag(source, target):
            yield (Drag(target, source),)
        case Type():
            yield from _as_it_was(before, after)
        case Click(target) | DoubleClick(target) | RightClick(target) | LongPress(target) | Hover(target):
            struck = element_under(target, before)
            element = None if struck is None else before.element(struck)
            there = None if element is None else _counterpart(element, after)
            if there is not None:
                yield (Click(there.id),)
            yield from _as_it_was(before, after)
        case Home():
            yield (Back(),)
        case _:
            yield from _as_it_was(before, after)


def _as_it_was(before: Observation, after: Observation) -> Iterator[Escape]:
    """Every field that holds something else is given back what it held."""
    for element in after.elements:
        was = _counterpart(element, before)
        if was is not None and element.interactive and was.value != element.value:
            if _FOCUS in element.states:
                restored = () if not was.value else (Type(was.value),)
                yield (Key("Control+a"), *(restored or (Key("Backspace"),)))
            yield (Type(was.value, element.id),)


def _marked_less(one: Observation, other: Observation) -> list[Element]:
    """Interactive elements that bear a mark in `one` and not in `other`."""
    found: list[Element] = []
    for element in one.elements:
        there = _counterpart(element, other)
        marks = _MARKS & set(element.states)
        if element.interactive and marks and (there is None or not marks <= set(there.states)):
            found.append(element)
    return found


def _counterpart(element: Element, page: Observation) -> Element | None:
    """The same element on another page: of its role and label, where it was if there are several."""
    alike = [e for e in page.elements if (e.role, e.label) == (element.role, element.label)]
    exact = [e for e in alike if e.box == element.box]
    found: Sequence[Element] = exact or alike
    return found[0] if len(found) == 1 or exact else None


def _unfocused(element: Element) -> Element:
    return replace(element, states=tuple(state for state in element.states if state != _FOCUS))
