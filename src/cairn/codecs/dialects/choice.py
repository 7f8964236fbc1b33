"""The dialects that a recipe can name."""

from collections.abc import Mapping
from enum import StrEnum

from cairn.codecs.dialects import browsergym, gui_r1, infigui, mobilegym, qwen_computer, qwen_mobile, ui_tars
from cairn.codecs.dialects.grammar import Grammar


class Dialect(StrEnum):
    """How a vision-language policy says what it does."""

    UI_TARS = "ui-tars"
    QWEN_COMPUTER = "qwen-computer"
    QWEN_MOBILE = "qwen-mobile"
    GUI_R1 = "gui-r1"
    INFIGUI = "infigui"
    MOBILEGYM = "mobilegym"
    BROWSERGYM = "browsergym"

    @property
    def grammar(self) -> Grammar:
        """Its way to speak."""
        return _GRAMMARS[self]


_GRAMMARS: Mapping[Dialect, Grammar] = {
    Dialect.UI_TARS: ui_tars.GRAMMAR,
    Dialect.QWEN_COMPUTER: qwen_computer.GRAMMAR,
    Dialect.QWEN_MOBILE: qwen_mobile.GRAMMAR,
    Dialect.GUI_R1: gui_r1.GRAMMAR,
    Dialect.INFIGUI: infigui.GRAMMAR,
    Dialect.MOBILEGYM: mobilegym.GRAMMAR,
    Dialect.BROWSERGYM: browsergym.GRAMMAR,
}
