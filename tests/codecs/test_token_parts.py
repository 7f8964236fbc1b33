"""Which tokens of an answer say a thought, an action or a place."""

import numpy as np
import pytest

from cairn.codecs.pixel import PixelCodec
from cairn.codecs.text import TextCodec
from cairn.codecs.thinking import ThinkingCodec
from cairn.codecs.token_parts import Part, letter_parts, token_parts
from cairn.data.action import Click, Key, Point, Type
from cairn.data.pixel_vocabulary import Crop, PixelVocabulary
from cairn.testing.scripted_policy import ScriptedCodec
from letter_tokenizer import LetterTokenizer
from shown_pages import element, page

SEEN = page(element(1, "okay"), element(2, "name", role="input"))
SIGNS = {Part.THOUGHT: "t", Part.ACTION: "a", Part.PLACE: "p"}


def signs(text: str) -> str:
    return "".join(SIGNS[part] for part in letter_parts(text))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("click [3]", "aaaaaappp"),
        ("click row 5 [3]", "aaaaaaaaaaaappp"),
        ("click (500, 250)", "aaaaaapppppppppp"),
        ('type [2] "(1)"', "aaaaapppaaaaaa"),
        ("<think>[1]</think><action>x [2]</action>", "t" * 18 + "a" * 10 + "ppp" + "a" * 9),
        ("Thought: [1]\nAction: click(start_box='(5,6)')", "t" * 13 + "a" * 25 + "ppppp" + "aa"),
        ("a </think> [1] </think>click [2]", "t" * 23 + "a" * 6 + "ppp"),  # it thought of the tag itself
        ("Action: click(point='<point>5 6</point>')", "a" * 21 + "p" * 18 + "aa"),
        ('{"a": "click", "coordinate": [5, 6]}', "a" * 29 + "pppppp" + "a"),
        ("click('a12')", "aaaaaaa" + "ppp" + "aa"),
        ("wait 1", "aaaaaa"),
    ],
)
def test_golden_parts_of_an_answers_letters(text: str, parts: str) -> None:
    assert signs(text) == parts


def test_a_tokens_part_is_that_of_its_letters_and_the_end_belongs_to_the_action() -> None:
    codec = ThinkingCodec(tokenizer=LetterTokenizer())
    (ids,) = codec.answers("go", Click(Point(0.5, 0.25)), SEEN)
    parts = token_parts(codec)
    assert parts is not None
    text = codec.read(ids).text
    assert parts(ids) == [*letter_parts(text), Part.ACTION]
    line = TextCodec(tokenizer=LetterTokenizer())
    (ids,) = line.answers("go", Type("bob", SEEN.elements[1].id), SEEN)
    parts = token_parts(line)
    assert parts is not None
    assert "".join(SIGNS[part] for part in parts(ids)) == "".join(SIGNS[p] for p in letter_parts(line.read(ids).text))


def test_of_the_pixel_policys_tokens_those_of_places_are_places() -> None:
    codec = PixelCodec(vocabulary=PixelVocabulary(), crop=Crop())
    parts = token_parts(codec)
    assert parts is not None
    click = codec.answers("go", Click(SEEN.elements[0].id), SEEN)[0]
    key = codec.answers("go", Key("Enter"), SEEN)[0]
    assert (parts(click), parts(key)) == ([Part.PLACE], [Part.ACTION])


def test_a_codec_that_cannot_be_read_has_no_parts() -> None:
    assert token_parts(ScriptedCodec()) is None
    assert np.zeros(1).shape == (1,)
