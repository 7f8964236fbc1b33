"""From what a page says of itself to an `Observation`."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from cairn.data.ids import ElementId
from cairn.data.observation import Box, Element
from cairn.envs.chromium.picture import cut_png
from cairn.errors import SessionError

# role, label, value, states, interactive, left, top, width, height; lengths in CSS pixels
_Row = tuple[str, str, str, list[str], bool, float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The part of a page that belongs to the task: its upper left corner, so large in CSS pixels."""

    width: int
    height: int

    def elements(self, state: str) -> tuple[Element, ...]:
        """The elements of a page's state, as `__cairn.look` gives it."""
        rows = cast("Sequence[_Row]", json.loads(state)["elements"])
        return tuple(self._element(index + 1, row) for index, row in enumerate(rows))

    def cut(self, picture: bytes) -> bytes:
        """The screen's part of a picture of the viewport, PNG to PNG."""
        try:
            return cut_png(picture, width=self.width, height=self.height)
        except ValueError as error:
            raise SessionError(f"the browser's picture cannot be read: {error}") from error

    def _element(self, number: int, row: _Row) -> Element:
        role, label, value, states, interactive, left, top, width, height = row
        return Element(
            id=ElementId(number),
            role=role,
            label=label,
            value=value,
            states=tuple(states),
            interactive=interactive,
            box=Box(
                left=left / self.width, top=top / self.height, width=width / self.width, height=height / self.height
            ),
        )


def digest_of(state: str) -> str:
    """Hash of the state, the same for pages that show the same things in the same places."""
    return hashlib.sha256(state.encode()).hexdigest()[:32]
