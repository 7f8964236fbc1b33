"""Ways back from what was wrong, read off two pages."""

from dataclasses import replace

import pytest

from cairn.data.action import Action, Back, Click, Drag, Key, Point, Scroll, Type
from cairn.data.escapes import Escape, escapes, needs_focus, same_page
from cairn.data.ids import ElementId
from cairn.data.observation import Box, Element, Observation

ROW = 0.1


def element(number: int, role: str, label: str, *states: str, value: str = "") -> Element:
    return Element(
        id=ElementId(number),
        role=role,
        label=label,
        value=value,
        states=tuple(sorted(states)),
        interactive=role != "text",
        box=Box(left=0.1, top=ROW * number, width=0.5, height=0.08),
    )


def page(*elements: Element) -> Observation:
    return Observation(image=None, elements=elements, accessibility="", url="here", digest=repr(elements))


def middle(number: int) -> Point:
    return Point(0.3, ROW * number + 0.04)


def found(before: Observation, wrong: Action, after: Observation) -> list[Escape]:
    return list(escapes(before, wrong, after))


def test_a_box_that_was_ticked_is_unticked_by_the_same_click_wherever_on_it_the_first_one_was() -> None:
    before = page(element(1, "checkbox", "ada"), element(2, "checkbox", "bob"))
    after = page(element(1, "checkbox", "ada"), element(2, "checkbox", "bob", "checked", "focused"))
    for wrong in (Click(ElementId(2)), Click(middle(2))):
        assert found(before, wrong, after)[0] == (Click(ElementId(2)),)


def test_the_tab_that_was_left_is_gone_back_to() -> None:
    before = page(element(1, "tab", "one", "selected"), element(2, "tab", "two"))
    after = page(element(1, "tab", "one"), element(2, "tab", "two", "selected"))
    assert found(before, Click(ElementId(2)), after)[:2] == [(Click(ElementId(2)),), (Click(ElementId(1)),)]


def test_a_field_is_given_back_what_it_held() -> None:
    before = page(element(1, "input", "name", value="ada"), element(2, "button", "send"))
    after = page(element(1, "input", "name", value="bob"), element(2, "button", "send"))
    assert found(before, Type("bob", ElementId(1)), after)[0] == (Type("ada", ElementId(1)),)


@pytest.mark.parametrize(("held", "keys"), [("", Key("Backspace")), ("ada", Type("ada"))])
def test_where_the_text_went_to_the_focus_it_is_marked_and_replaced_there(held: str, keys: Action) -> None:
    before = page(element(1, "input", "name", "focused", value=held))
    after = page(element(1, "input", "name", "focused", value=f"{held}bob"))
    assert found(before, Type("bob"), after)[0] == (Key("Control+a"), keys)


def test_a_way_out_that_has_only_just_appeared_comes_before_everything_else_that_has() -> None:
    before = page(element(1, "link", "mail"))
    after = page(element(2, "button", "delete"), element(3, "button", "Cancel"))
    wanted = [(Click(ElementId(3)),), (Key("Escape"),), (Back(),), (Click(ElementId(2)),)]
    assert found(before, Click(ElementId(1)), after) == wanted


def test_wheels_turn_back_and_what_was_dragged_is_dragged_back() -> None:
    here = page(element(1, "list", "names"))
    assert found(here, Scroll(None, 0.0, 0.5), here)[0] == (Scroll(None, 0.0, -0.5),)
    assert found(here, Drag(middle(1), middle(4)), here)[0] == (Drag(middle(4), middle(1)),)


def test_no_way_is_tried_twice() -> None:
    before = page(element(1, "checkbox", "ada"))
    after = page(element(1, "checkbox", "ada", "checked"))
    ways = found(before, Click(ElementId(1)), after)
    assert len(ways) == len(set(ways))


def test_where_the_focus_is_makes_another_page_only_where_it_is_needed() -> None:
    plain, focused = page(element(1, "input", "name")), page(element(1, "input", "name", "focused"))
    assert same_page(plain, focused, focus=False)
    assert not same_page(plain, focused, focus=True)
    assert not same_page(plain, replace(focused, url="elsewhere"), focus=False)
    assert not same_page(plain, page(element(1, "input", "name", value="a")), focus=False)
    assert not same_page(plain, page(element(1, "input", "name"), element(2, "input", "name")), focus=False)


def test_keys_and_text_without_a_field_need_the_focus() -> None:
    assert needs_focus(Key("Enter"))
    assert needs_focus(Type("a"))
    assert not needs_focus(Type("a", ElementId(1)))
    assert not needs_focus(Click(ElementId(1)))
