import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.envs.chromium.keys import parse_chord, stroke_of


@pytest.mark.parametrize(
    ("keys", "key", "code", "modifiers", "text"),
    [
        ("Enter", "Enter", "Enter", 0, "\r"),
        ("a", "a", "KeyA", 0, "a"),
        ("A", "A", "KeyA", 0, "A"),
        ("Control+a", "a", "KeyA", 2, ""),
        ("Control+Shift+ArrowDown", "ArrowDown", "ArrowDown", 10, ""),
        ("+", "+", "Equal", 0, "+"),
        ("Control++", "+", "Equal", 2, ""),
        ("Space", " ", "Space", 0, " "),
        ("Shift", "Shift", "ShiftLeft", 0, ""),
    ],
)
def test_a_chord_names_key_code_modifiers_and_text(keys: str, key: str, code: str, modifiers: int, text: str) -> None:
    stroke = parse_chord(keys)
    assert stroke is not None
    assert (stroke.key, stroke.code, stroke.modifiers, stroke.text) == (key, code, modifiers, text)


@pytest.mark.parametrize("keys", ["", "Foo", "Hyper+a", "Control+", "a+b", "+a"])
def test_an_unknown_key_has_no_stroke(keys: str) -> None:
    assert parse_chord(keys) is None


def test_control_a_selects_all_as_a_real_keyboard_would() -> None:
    stroke = parse_chord("Control+a")
    assert stroke is not None
    assert stroke.down()["commands"] == ["selectAll"]


@given(st.sampled_from(string.ascii_letters + string.digits + string.punctuation + " "))
def test_every_printable_ascii_character_has_a_key_that_types_it(character: str) -> None:
    stroke = stroke_of(character)
    assert stroke is not None
    assert stroke.text == character
    assert stroke.code
    assert stroke.virtual > 0


@given(st.characters(min_codepoint=128))
def test_other_characters_have_no_key(character: str) -> None:
    assert stroke_of(character) is None
