"""Keyboard chords in the browser's own names, as the events that a keyboard would give."""

from dataclasses import dataclass

_MODIFIERS = {"Alt": 1, "Control": 2, "Ctrl": 2, "Meta": 4, "Command": 4, "Shift": 8}
_CONTROL = 2
_NAMED = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    "Backspace": ("Backspace", 8, ""),
    "Delete": ("Delete", 46, ""),
    "Insert": ("Insert", 45, ""),
    "Space": ("Space", 32, " "),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "PageUp": ("PageUp", 33, ""),
    "PageDown": ("PageDown", 34, ""),
    **{f"F{n}": (f"F{n}", 111 + n, "") for n in range(1, 13)},
}
_BARE = {"Shift": ("ShiftLeft", 16), "Control": ("ControlLeft", 17), "Alt": ("AltLeft", 18), "Meta": ("MetaLeft", 91)}
_PUNCTUATION = {
    **dict.fromkeys(";:", ("Semicolon", 186)), **dict.fromkeys("=+", ("Equal", 187)),
    **dict.fromkeys(",<", ("Comma", 188)), **dict.fromkeys("-_", ("Minus", 189)),
    **dict.fromkeys(".>", ("Period", 190)), **dict.fromkeys("/?", ("Slash", 191)),
    **dict.fromkeys("`~", ("Backquote", 192)), **dict.fromkeys("[{", ("BracketLeft", 219)),
    **dict.fromkeys("\\|", ("Backslash", 220)), **dict.fromkeys("]}", ("BracketRight", 221)),
    **dict.fromkeys("'\"", ("Quote", 222)), " ": ("Space", 32),
    **{shifted: (f"Digit{n}", 48 + n) for n, shifted in enumerate(")!@#$%^&*(")},
}  # fmt: skip
_COMMANDS = {"a": "selectAll", "c": "copy", "v": "paste", "x": "cut", "z": "undo", "y": "redo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStroke:
    """One key with its modifiers, ready to be pressed."""

    key: str
    code: str
    virtual: int  # Windows virtual key code
    text: str  # what it types; empty where it types nothing
    modifiers: int  # Alt 1, Control 2, Meta 4, Shift 8
    command: str | None  # an editing command that a real keyboard's shortcut would give

    def down(self) -> dict[str, object]:
        """Parameters of the press."""
        pressed: dict[str, object] = {
            "type": "keyDown" if self.text else "rawKeyDown",
            "key": self.key,
            "code": self.code,
            "windowsVirtualKeyCode": self.virtual,
            "modifiers": self.modifiers,
        }
        if self.text:
            pressed["text"] = self.text
        if self.command is not None:
            pressed["commands"] = [self.command]
        return pressed

    def up(self) -> dict[str, object]:
        """Parameters of the release."""
        return {
            "type": "keyUp",
            "key": self.key,
            "code": self.code,
            "windowsVirtualKeyCode": self.virtual,
            "modifiers": self.modifiers,
        }


def parse_chord(keys: str) -> KeyStroke | None:
    """`Enter`, `a`, `Control+a`, `Control++` as a stroke; None where a name is unknown."""
    if keys == "+" or keys.endswith("++"):  # the plus key itself, alone or at the end of a chord
        head, plus, name = keys[:-2], keys[:-1], "+"
    else:
        head, plus, name = keys.rpartition("+")
    if plus and not head:
        return None
    modifiers = 0
    for modifier in head.split("+") if head else []:
        if modifier not in _MODIFIERS:
            return None
        modifiers |= _MODIFIERS[modifier]
    return _stroke(name, modifiers)


def stroke_of(character: str) -> KeyStroke | None:
    """The stroke that types a character on a US keyboard; None where none does."""
    if character == "\n":
        return _stroke("Enter", 0)
    return _stroke(character, 0) if len(character) == 1 and character.isascii() and character.isprintable() else None


def _stroke(name: str, modifiers: int) -> KeyStroke | None:
    typing = modifiers in (0, _MODIFIERS["Shift"])
    if name in _NAMED:
        code, virtual, text = _NAMED[name]
        key = " " if name == "Space" else name
        return KeyStroke(
            key=key, code=code, virtual=virtual, text=text if typing else "", modifiers=modifiers, command=None
        )
    if name in _BARE:
        code, virtual = _BARE[name]
        return KeyStroke(key=name, code=code, virtual=virtual, text="", modifiers=modifiers, command=None)
    if len(name) != 1:
        return None
    code, virtual = _character(name)
    command = _COMMANDS.get(name.lower()) if modifiers == _CONTROL else None
    return KeyStroke(
        key=name, code=code, virtual=virtual, text=name if typing else "", modifiers=modifiers, command=command
    )


def _character(name: str) -> tuple[str, int]:
    """Code and virtual key of a printable character; both empty where no US key bears it."""
    if name.isascii() and name.isalpha():
        return f"Key{name.upper()}", ord(name.upper())
    if name.isascii() and name.isdigit():
        return f"Digit{name}", ord(name)
    return _PUNCTUATION.get(name, ("", 0))
