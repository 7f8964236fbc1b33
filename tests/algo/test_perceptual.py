import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.algo.perceptual import SIDE, alike, difference_hash


def picture(seed: int, *, height: int = 160, width: int = 170) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 255, (height, width)).astype(np.float32)


def test_each_bit_says_whether_a_square_is_darker_than_the_one_to_its_right() -> None:
    rising = np.tile(np.arange(SIDE + 1, dtype=np.float32), (SIDE, 1))
    assert difference_hash(rising).all()
    assert not difference_hash(rising[:, ::-1]).any()
    rising[3, 5] = 99
    expected = np.ones((SIDE, SIDE), bool)
    expected[3, 5] = False
    np.testing.assert_array_equal(difference_hash(rising), expected.ravel())


@given(st.integers(0, 99), st.floats(0.5, 0.99), st.floats(0, 20))
def test_contrast_and_brightness_change_no_bit(seed: int, factor: float, shift: float) -> None:
    seen = picture(seed) + 1
    changed = difference_hash(factor * seen + shift) != difference_hash(seen)
    assert np.count_nonzero(changed) <= 2  # squares that were all but equal


def test_a_blank_page_has_no_bits_and_a_size_of_its_own_does_not_matter() -> None:
    assert not difference_hash(np.full((333, 97), 255, np.float32)).any()
    small = picture(3, height=SIDE, width=SIDE + 1)
    np.testing.assert_array_equal(difference_hash(np.kron(small, np.ones((7, 5)))), difference_hash(small))
    with pytest.raises(ValueError, match="at least 17 pixels"):
        difference_hash(np.zeros((99, SIDE)))


def test_hashes_near_a_leader_are_one_and_those_of_other_pages_never_are() -> None:
    bits = [np.arange(8) < n for n in (0, 1, 2, 3, 4)]
    assert alike(bits, bits=0, among=["a"] * 5) == [0, 1, 2, 3, 4]
    assert alike(bits, bits=2, among=["a"] * 5) == [0, 0, 0, 3, 3]
    assert alike([bits[0]] * 3, bits=8, among=["a", "b", "a"]) == [0, 1, 0]
