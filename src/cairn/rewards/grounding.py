"""How well a place, a box or a text hits what was meant. Coordinates are fractions of the screen."""

from cairn.data.action import Point
from cairn.data.observation import Box

_INFIGUI_IOU = 0.7


def point_in_box(point: Point, box: Box, *, strict: bool = False) -> bool:
    """Inside, edges included (UI-R1, Mobile-R1); `strict`: without them (GUI-R1's code)."""
    right, bottom = box.left + box.width, box.top + box.height
    if strict:
        return box.left < point.x < right and box.top < point.y < bottom
    return box.left <= point.x <= right and box.top <= point.y <= bottom


def point_near(point: Point, target: Point, *, share: float) -> bool:
    """Within `share` of the screen's diagonal in fractions, as evaluations on AndroidControl count (0.14)."""
    return ((point.x - target.x) ** 2 + (point.y - target.y) ** 2) ** 0.5 <= share


def overlap(one: Box, other: Box) -> float:
    """Intersection over union, in [0, 1]; 0 where both are empty."""
    width = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    height = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    common = max(0.0, width) * max(0.0, height)
    union = _area(one) + _area(other) - common
    return common / union if union > 0 else 0.0


def _area(box: Box) -> float:
    """From its edges, rounded as an intersection's are: else a flat box could overlap itself by more than all."""
    return ((box.left + box.width) - box.left) * ((box.top + box.height) - box.top)


def box_reward(one: Box, other: Box) -> float:
    """1 from an overlap of 0.7 on, below it in proportion (InfiGUI-R1, arXiv:2504.14239)."""
    return min(1.0, overlap(one, other) / _INFIGUI_IOU)


def word_overlap(one: str, other: str) -> float:
    """F1 of the sets of words, case and brackets aside; one word inside the other text is 1 (GUI-R1's code)."""
    a, b = _words(one), _words(other)
    if not a or not b:
        return float(a == b)
    if len(a) == 1 and next(iter(a)) in other.casefold():
        return 1.0
    if len(b) == 1 and next(iter(b)) in one.casefold():
        return 1.0
    return 2 * len(a & b) / (len(a) + len(b))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().strip("[]() ").split())
