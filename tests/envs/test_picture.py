"""Cutting PNG pictures without decoding them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cairn.envs.chromium.picture import cut_png


def _packed(image: Image.Image, **options: int) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return out.getvalue()


@given(
    st.sampled_from(["L", "LA", "RGB", "RGBA"]),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
)
def test_a_cut_equals_a_crop_whatever_the_rows_filters(mode, width, height, across, down, level, random) -> None:
    values = [random.randrange(4) * 60 for _ in range(width * height * len(mode))]  # few values: filters get chosen
    image = Image.frombytes(mode, (width, height), bytes(values))
    cut = max(1, round(width * across)), max(1, round(height * down))
    taken = Image.open(io.BytesIO(cut_png(_packed(image, compress_level=level), width=cut[0], height=cut[1])))
    assert (taken.mode, taken.size) == (mode, cut)
    assert taken.tobytes() == image.crop((0, 0, *cut)).tobytes()


@pytest.mark.parametrize(
    ("picture", "complaint"),
    [
        (b"", "not a PNG"),
        (b"<html>", "not a PNG"),
        (_packed(Image.new("RGB", (20, 20)))[:40], "a part of one"),
        (_packed(Image.new("RGB", (20, 20)))[:-25], "damaged|incomplete|a part"),
        (_packed(Image.new("RGB", (9, 20))), "no corner of 10 x 10"),
        (_packed(Image.new("RGB", (20, 9))), "no corner of 10 x 10"),
        (_packed(Image.new("P", (20, 20))), "colour type 3"),
        (_packed(Image.new("1", (20, 20))), "1 bits"),
        (_packed(Image.new("I;16", (20, 20))), "16 bits"),
    ],
)
def test_what_cannot_be_cut_says_why(picture: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        cut_png(picture, width=10, height=10)
