"""Pages as text with places."""

from dataclasses import replace

from cairn.codecs.layout import layout_text
from cairn.data.ids import ElementId
from cairn.data.observation import Box, Element, Observation


def element(number: int, label: str, box: Box, **changed: object) -> Element:
    made = Element(id=ElementId(number), role="button", label=label, value="", states=(), interactive=True, box=box)
    return replace(made, **changed)


def page(*elements: Element) -> Observation:
    return Observation(image=None, elements=elements, accessibility="", url="", digest="")


def test_every_element_is_a_line_with_its_box_in_thousandths() -> None:
    seen = page(
        element(1, "okay", Box(left=0.1, top=0.25, width=0.5, height=0.125)),
        element(2, "", Box(left=0.1, top=0.5, width=0.5, height=0.1), role="input", value="ada", states=("focused",)),
        element(3, "read me", Box(left=0.0, top=0.9, width=1.0, height=0.1), role="text", interactive=False),
    )
    assert layout_text(seen).splitlines() == [
        '[1] button "okay" (100, 250) 500 x 125',
        '[2] input = "ada" focused (100, 500) 500 x 100',
        '- text "read me" (0, 900) 1000 x 100',
    ]


def test_what_lies_inside_something_is_indented_below_it() -> None:
    outer = Box(left=0.1, top=0.1, width=0.8, height=0.8)
    seen = page(
        element(1, "list", outer),
        element(2, "item", Box(left=0.2, top=0.2, width=0.5, height=0.2)),
        element(3, "beside", Box(left=0.2, top=0.85, width=0.5, height=0.1)),
    )
    assert [line.index("[") for line in layout_text(seen).splitlines()] == [0, 2, 0]


def test_what_is_left_out_is_counted() -> None:
    seen = page(*(element(n, "a", Box(left=0.1, top=0.1, width=0.1, height=0.1)) for n in range(1, 124)))
    assert layout_text(seen).splitlines()[-1] == "(3 more)"
