"""JSON of public data sets: read value by value, with the line of each, and damaged in any way without a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from cairn.formats.rows import DamageError, Entry, readable, reason_of

_LONGEST = 300  # digits of a whole number: Python refuses to read those of thousands
_NO_UTF8 = "holds bytes that are not UTF-8: save the file as UTF-8"


class JsonError(DamageError):
    """Text is not the JSON that it should be; `line` is 0 where that concerns the whole file."""

    def __init__(self, reason: str, *, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST else float(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)


def parsed(text: str | bytes) -> object:
    """The one value that `text` holds; a `JsonError` where it holds none, or more."""
    try:
        plain = (text.decode() if isinstance(text, bytes) else text).strip(_BLANK)
    except UnicodeDecodeError as error:
        raise JsonError(_NO_UTF8) from error
    value, end = decoded(plain)
    if plain[end:]:
        raise JsonError(f"is not JSON: more stands behind its end, at character {end + 1}", line=1)
    return value


def decoded(text: str, at: int = 0) -> tuple[object, int]:
    """The value that begins at a place, and where it ends."""
    try:
        return cast("tuple[object, int]", _DECODER.raw_decode(text, at))
    except json.JSONDecodeError as error:
        raise JsonError(f"is not JSON: {error.msg}, at character {error.colno}", line=error.lineno) from error
    except RecursionError as error:
        raise JsonError("is JSON that is nested too deep to be read", line=text.count("\n", 0, at) + 1) from error


_BLANK = " \t\r\n\ufeff"


# ── files ─────────────────────────────────────────────────────────────────────


def json_rows(path: Path) -> Iterator[Entry]:
    """The elements of a JSON array, or the lines of a .jsonl file; of an array, those before any broken JSON."""
    if path.suffix == ".jsonl":
        yield from _lines(path)
        return
    try:
        yield from JsonCursor.of(path).entries(path)
    except JsonError as error:
        yield broken(path, error)


def broken(path: Path, error: JsonError) -> Entry:
    """What is said of a file whose JSON ends, or goes wrong, in the middle."""
    return Entry(where=f"{path}:{error.line}" if error.line else str(path), problem=str(error))


def _lines(path: Path) -> Iterator[Entry]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _line(f"{path}:{number}", line)
    except OSError as error:
        yield Entry(where=str(path), problem=f"cannot be read: {reason_of(error)}")


def _line(where: str, line: bytes) -> Entry:
    try:
        return Entry(where=where, value=parsed(line))
    except JsonError as error:
        return Entry(where=where, problem=str(error))


class JsonCursor:
    """Walks through JSON from its beginning, and knows on which line it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0  # up to where lines are
        self._line = 1

    @classmethod
    def of(cls, path: Path) -> "JsonCursor":
        """At the beginning of a file. What is not UTF-8 in it is damage of the row that holds it, not of the file."""
        try:
            return cls(path.read_text(encoding="utf-8", errors="surrogateescape"))
        except OSError as error:
            raise JsonError(f"cannot be read: {reason_of(error)}") from error

    @property
    def line(self) -> int:
        """Of the next value."""
        self._skip()
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def value(self) -> object:
        """The next value, whole."""
        self._skip()
        found, self._at = decoded(self._text, self._at)
        return found

    def entries(self, path: Path) -> Iterator[Entry]:
        """The elements of an array; those that share their line with what stands before are counted, too, from 1."""
        before = self.line
        for row, line in enumerate(self.array(), start=1):
            yield self._entry(f"{path}:{line}" + (f", row {row}" if line == before else ""))
            before = line

    def named(self, path: Path) -> Iterator[tuple[str, Entry]]:
        """The members of an object; those that share their line with what stands before are named, too."""
        before = self.line
        for name in self.members():
            line = self.line
            yield name, self._entry(f"{path}:{line}" + (f", {readable(name)}" if line == before else ""))
            before = line

    def _entry(self, where: str) -> Entry:
        self._skip()
        begin = self._at
        value = self.value()
        problem = "" if _is_utf8(self._text[begin : self._at]) else _NO_UTF8
        return Entry(where=where, value=value, problem=problem)

    def array(self) -> Iterator[int]:
        """The line of each element; the caller takes the element before it asks for the next one."""
        self._begin("[", "array", hint="; lines of objects belong into a file that ends in .jsonl")
        if self._found("]"):
            return
        while True:
            yield self.line
            if self._found("]"):
                return
            self._expect(",")

    def members(self) -> Iterator[str]:
        """The name of each member of an object; the caller takes its value before it asks for the next one."""
        self._begin("{", "object")
        if self._found("}"):
            return
        while True:
            name = str(self.value())
            self._expect(":")
            yield name
            if self._found("}"):
                return
            self._expect(",")

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in _BLANK:
            self._at += 1

    def _found(self, mark: str) -> bool:
        self._skip()
        if self._text[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    def _begin(self, mark: str, kind: str, *, hint: str = "") -> None:
        if not self._found(mark):
            here = readable(self._text[self._at : self._at + 10])
            told = f"must be a JSON {kind}, and begins with {here!r}{hint}" if here else "is not JSON: nothing is there"
            raise JsonError(told, line=self.line)

    def _expect(self, mark: str) -> None:
        if not self._found(mark):
            raise JsonError(f"is not JSON: expected {mark!r}", line=self.line)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
