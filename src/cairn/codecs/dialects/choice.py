"""The dialects that a recipe can name."""

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
        match self:
            case Dialect.UI_TARS:
                return ui_tars.GRAMMAR
            case Dialect.QWEN_COMPUTER:
                return qwen_computer.GRAMMAR
            case Dialect.QWEN_MOBILE:
                return qwen_mobile.GRAMMAR
            case Dialect.GUI_R1:
                return gui_r1.GRAMMAR
            case Dialect.INFIGUI:
                return infigui.GRAMMAR
            case Dialect.MOBILEGYM:
                return mobilegym.GRAMMAR
            case Dialect.BROWSERGYM:
                return browsergym.GRAMMAR
