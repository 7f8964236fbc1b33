"""Files that the rows of public data sets name."""

import os
from pathlib import Path

from cairn.formats.rows import DamageError, readable, reason_of


def named_file(file: Path, name: str, *folders: Path) -> Path:
    """The file of that name, in the first of the folders that has it; where none does, in the plainest.

    What comes from elsewhere may not name whatever else lies on this machine: only what lies beside `file`, which is
    the row's own, or in the folder around it.
    """
    outermost = Path(os.path.normpath(file.absolute())).parent.parent
    places = [folder / name for folder in folders]
    inside = [place for place in places if Path(os.path.normpath(place.absolute())).is_relative_to(outermost)]
    found = next((place for place in inside if _lies(place)), None)
    if found is None and places[0] not in inside:
        raise DamageError(f"{readable(name)} lies outside of the data set: put it, or a link to it, into {outermost}")
    return found or places[0]


def picture_path(file: Path, name: str) -> Path:
    """Where a picture lies that a file beside it names; the plainest place where it is nowhere."""
    around = file.parent.parent
    return named_file(file, name, file.parent, file.parent / "images", around / "images", around)


def content(path: Path, what: str) -> bytes:
    """The bytes of a file that a row names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamageError(f"the {what} {readable(str(path))} cannot be read: {reason_of(error)}") from error
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise DamageError(f"the {what} {readable(str(path))} cannot be read: no file can have that name") from error


def text_content(path: Path, what: str) -> str:
    """The text of a file that a row names."""
    try:
        return content(path, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamageError(f"the {what} {readable(str(path))} is not UTF-8: save it as UTF-8") from error


def _lies(place: Path) -> bool:
    try:
        return place.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
