"""What differs between a saved state and the one that came back is said in words."""

from dataclasses import replace

from cairn.data.ids import ElementId
from cairn.data.observation import Box, Element, Observation
from cairn.snapshots.likeness import unlikeness

FIELD = Element(
    id=ElementId(1),
    role="input",
    label="word",
    value="amber",
    states=("focused",),
    interactive=True,
    box=Box(left=0.1, top=0.1, width=0.2, height=0.1),
)


def seen(*elements: Element) -> Observation:
    return Observation(image=None, elements=elements, accessibility="", url="", digest=str(elements), message="")


def difference(*elements: Element) -> str:
    return unlikeness(seen(FIELD), seen(*elements), blobs=None, tolerance=0.0)


def test_equal_states_do_not_differ() -> None:
    assert difference(FIELD) == ""


def test_another_element_is_named_with_the_one_that_was_there() -> None:
    told = difference(replace(FIELD, role="button", label="go"))
    assert told == "its structure differs (element 1 was input 'word', and is button 'go')"


def test_an_element_that_changed_is_told_by_what_changed() -> None:
    told = difference(replace(FIELD, value="", states=()))
    assert told == "its structure differs (element 1, input 'word', differs in its value and states)"


def test_missing_elements_are_counted() -> None:
    assert difference() == "its structure differs (1 elements then, 0 now)"
