"""Values as models write them, in JSON or as Python literals, and calls with such arguments. Reading is bounded.

Nothing is evaluated: a value is read character by character, at most `LONGEST` of them and `DEEPEST` levels deep.
What cannot be read raises a `ValueError` that says in a few words what is wrong.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

LONGEST = 20_000
DEEPEST = 8

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"

_NUMBER = re.compile(r"[-+]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][-+]?\d{1,2})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]{0,63}")
_SPACE = re.compile(r"\s*")
_WORDS: Mapping[str, bool | None] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_ESCAPES: Mapping[str, str] = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\"}
_HEX_DIGITS = {"u": 4, "x": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`name(positional, …, key=named, …)`."""

    name: str
    positional: Sequence[Value] = ()
    named: Mapping[str, Value]


def read_value(text: str) -> Value:
    """The one value that `text` holds."""
    reader = _Reader(text)
    value = reader.value(depth=0)
    reader.end()
    return value


def read_object(text: str) -> Mapping[str, Value]:
    """The one object (JSON) or dictionary (Python) that `text` holds."""
    value = read_value(text)
    if not isinstance(value, dict):
        raise ValueError("it is no object in braces")  # noqa: TRY004 - what a model wrote, not what a caller passed
    return value


def read_call(text: str) -> Call:
    """The one call that `text` holds."""
    reader = _Reader(text)
    call = reader.call()
    reader.end()
    return call


class _Reader:
    """Goes through a text from left to right."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"it is longer than {LONGEST} characters")
        self._text = text
        self._at = 0

    def end(self) -> None:
        self._skip()
        if self._at < len(self._text):
            raise ValueError(f"there is more after it: {self._text[self._at : self._at + 20]!r}")

    def value(self, *, depth: int) -> Value:
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        self._skip()
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._mapping(depth)
            case "[":
                return self._items("[", "]", depth)
            case "(":
                return self._items("(", ")", depth)
            case "'" | '"':
                return self._quoted()
            case _:
                return self._plain()

    def call(self) -> Call:
        name = self._name()
        positional: list[Value] = []
        named: dict[str, Value] = {}
        self._expect("(")
        while not self._took(")"):
            key = self._key()
            if key is None:
                positional.append(self.value(depth=0))
            else:
                named[key] = self.value(depth=0)
            if not self._took(","):
                self._expect(")")
                break
        return Call(name=name, positional=tuple(positional), named=named)

    def _mapping(self, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        self._expect("{")
        while not self._took("}"):
            self._skip()
            key = self._quoted() if self._text[self._at : self._at + 1] in {"'", '"'} else self._name()
            self._expect(":")
            found[key] = self.value(depth=depth + 1)
            if not self._took(","):
                self._expect("}")
                break
        return found

    def _items(self, opening: str, closing: str, depth: int) -> list[Value]:
        found: list[Value] = []
        self._expect(opening)
        while not self._took(closing):
            found.append(self.value(depth=depth + 1))
            if not self._took(","):
                self._expect(closing)
                break
        return found

    def _quoted(self) -> str:
        quote = self._text[self._at]
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 1
            if letter == quote:
                return "".join(parts)
            parts.append(self._escaped() if letter == "\\" else letter)
        raise ValueError("a quotation does not end")

    def _escaped(self) -> str:
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        digits = _HEX_DIGITS.get(letter)
        if digits is None:
            return _ESCAPES.get(letter, letter)
        code = self._text[self._at : self._at + digits]
        if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", code):
            raise ValueError(f"\\{letter} wants {digits} digits")
        self._at += digits
        return chr(int(code, 16)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _plain(self) -> str | int | float | bool | None:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            said = number.group()
            return float(said) if set(said) & set(".eE") else int(said)
        word = self._name()
        if word not in _WORDS:
            raise ValueError(f"{word[:20]!r} is no value: put text in quotes")
        return _WORDS[word]

    def _name(self) -> str:
        self._skip()
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise ValueError(f"a name or a value was to come at {self._text[self._at : self._at + 20]!r}")
        self._at = found.end()
        return found.group()

    def _key(self) -> str | None:
        """The name before an equals sign; None, and nothing taken, where there is none."""
        self._skip()
        found = _NAME.match(self._text, self._at)
        if found is None:
            return None
        after = _SPACE.match(self._text, found.end())
        end = found.end() if after is None else after.end()
        if self._text[end : end + 1] != "=":
            return None
        self._at = end + 1
        return found.group()

    def _took(self, mark: str) -> bool:
        self._skip()
        if self._text[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._took(mark):
            found = self._text[self._at : self._at + 20]
            raise ValueError(f"{mark!r} was to come at {found!r}" if found else f"it ends before {mark!r}")

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
