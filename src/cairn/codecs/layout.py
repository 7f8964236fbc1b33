"""A page as text that says where things are: what a teacher that cannot see reasons over (InfiGUI-R1)."""

from collections.abc import Iterator

from cairn.codecs.text_grammar import THOUSANDTHS, shown_label
from cairn.data.observation import Box, Element, Observation

_MOST = 120  # elements
_LABEL = 60  # characters
_INDENT = "  "
_EDGE = 1e-6


def layout_text(seen: Observation) -> str:
    """The elements, one a line, each with its box in thousandths of the screen, indented below what contains it.

    Example: `[3] button "okay" (112, 530) 250 x 90`: left, top, width, height.
    """
    lines: list[str] = []
    above: list[Element] = []
    for element in seen.elements[:_MOST]:
        depth = sum(_holds(other.box, element.box) for other in above)
        lines.append(_INDENT * depth + " ".join(_parts(element)))
        above.append(element)
    left_out = len(seen.elements) - _MOST
    return "\n".join([*lines, *([f"({left_out} more)"] if left_out > 0 else [])])


def _parts(element: Element) -> Iterator[str]:
    label = shown_label(element.label, longest=_LABEL)
    yield from ([f"[{element.id}]"] if element.interactive else ["-"])
    yield element.role
    if label:
        yield f'"{label}"'
    if element.value:
        yield f'= "{shown_label(element.value, longest=_LABEL)}"'
    yield from element.states
    box = element.box
    left, top, width, height = (round(THOUSANDTHS * side) for side in (box.left, box.top, box.width, box.height))
    yield f"({left}, {top}) {width} x {height}"


def _holds(outer: Box, inner: Box) -> bool:
    """Whether one box lies in the other, which is larger."""
    inside = (
        outer.left <= inner.left + _EDGE
        and outer.top <= inner.top + _EDGE
        and inner.left + inner.width <= outer.left + outer.width + _EDGE
        and inner.top + inner.height <= outer.top + outer.height + _EDGE
    )
    return inside and outer.width * outer.height > inner.width * inner.height
