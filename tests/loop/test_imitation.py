"""The curriculum: a pure function of seed and update that passes over every lesson in turn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.ids import TemplateId
from cairn.data.sample import Batch
from cairn.data.trajectory import Prompt
from cairn.errors import ConfigError
from cairn.loop.imitation import Curriculum, Lesson, lessons_from
from cairn.rollout.demonstrate import EXPERT_VERSION
from cairn.testing.scripted_policy import ScriptedCodec


def lesson(number: int, *, answers: int = 1) -> Lesson:
    """Its prompt is its number; its answers are of different lengths."""
    return Lesson(
        template=TemplateId("t"),
        prompt=Prompt(token_ids=np.array([100 + number], np.int32), images=()),
        answers=[np.arange(1, 2 + i, dtype=np.int32) for i in range(answers)],
    )


def curriculum(lessons: int, *, batch_size: int, seed: int = 0, answers: int = 1, ways: int = 1) -> Curriculum:
    found = [lesson(i, answers=ways) for i in range(lessons)]
    return Curriculum(found, batch_size=batch_size, answers=answers, seed=seed)


def seen(batch: Batch) -> list[int]:
    """Numbers of the lessons in a batch."""
    return [int(s.sample.token_ids[0]) - 100 for s in batch.samples]


@given(lessons=st.integers(1, 20), batch_size=st.integers(1, 25), seed=st.integers(0, 2**31), laps=st.integers(1, 3))
def test_a_pass_shows_every_lesson_once_but_for_a_rest_smaller_than_a_batch(
    lessons: int, batch_size: int, seed: int, laps: int
) -> None:
    course = curriculum(lessons, batch_size=batch_size, seed=seed)
    size = min(batch_size, lessons)
    per_pass = lessons // size
    for lap in range(laps):
        shown = [n for u in range(lap * per_pass, (lap + 1) * per_pass) for n in seen(course.batch(u))]
        assert len(shown) == len(set(shown)) == per_pass * size > lessons - size


@given(update=st.integers(0, 500), seed=st.integers(0, 2**31))
def test_an_update_depends_on_the_seed_and_its_number_alone(update: int, seed: int) -> None:
    fresh, used = (curriculum(7, batch_size=3, seed=seed, ways=5) for _ in range(2))
    for earlier in range(3):
        used.batch(earlier)
    ones, others = fresh.batch(update), used.batch(update)
    for one, other in zip(ones.samples, others.samples, strict=True):
        assert one.sample.token_ids.tolist() == other.sample.token_ids.tolist()


def test_passes_and_seeds_differ_in_their_order() -> None:
    orders = {tuple(seen(curriculum(12, batch_size=12, seed=s).batch(u))) for s in range(3) for u in range(3)}
    assert len(orders) == 9


@given(ways=st.integers(1, 4), answers=st.integers(1, 4), update=st.integers(0, 20))
def test_the_weights_of_a_batch_sum_to_one_and_every_lesson_weighs_the_same(
    ways: int, answers: int, update: int
) -> None:
    batch = curriculum(6, batch_size=3, answers=answers, ways=ways).batch(update)
    weights = dict.fromkeys(seen(batch), 0.0)
    for number, sample in zip(seen(batch), batch.samples, strict=True):
        weights[number] += float(sample.weights.sum())
        assert sample.sample.loss_mask.tolist() == [False] + [True] * (len(sample.sample.loss_mask) - 1)
        assert set(sample.sample.versions[1:].tolist()) == {EXPERT_VERSION}
    assert list(weights.values()) == pytest.approx([1 / 3] * 3)


def test_every_right_answer_is_drawn_sooner_or_later() -> None:
    course = curriculum(1, batch_size=1, ways=4)
    drawn = {len(course.batch(u).samples[0].sample.token_ids) for u in range(60)}
    assert drawn == {2, 3, 4, 5}


def test_without_a_demonstration_there_is_nothing_to_imitate() -> None:
    with pytest.raises(ConfigError, match="nothing to imitate"):
        Curriculum(lessons_from([], ScriptedCodec()), batch_size=1, answers=1, seed=0).batch(0)


def test_tokens_share_their_lessons_weight_as_they_are_told() -> None:
    def later_more(answer: np.ndarray) -> np.ndarray:
        return 1.0 + np.arange(answer.shape[0])

    found = [lesson(0, answers=2), lesson(1, answers=1)]
    plain = Curriculum(found, batch_size=2, answers=2, seed=0).batch(0)
    told = Curriculum(found, batch_size=2, answers=2, seed=0, weigh=later_more).batch(0)
    for one, other in zip(plain.samples, told.samples, strict=True):
        np.testing.assert_array_equal(one.sample.token_ids, other.sample.token_ids)
        own = other.weights[other.sample.loss_mask]
        assert own == pytest.approx(own[0] * later_more(own), rel=1e-5)
    assert sum(float(one.weights.sum()) for one in told.samples) == pytest.approx(1.0, rel=1e-5)
