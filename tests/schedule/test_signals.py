"""What is measured at a checkpoint, and what it takes to be a pivot."""

import numpy as np
import pytest

from cairn.errors import ConfigError
from cairn.schedule.orders import Aim, Order, Writer
from cairn.schedule.signals import Selection, Signal
from cairn.testing.groups import played_group
from schedule.tracks import came_to, track_of

TRACK = track_of(1)
PLAN = Writer(name="s", seed=0).plan(
    0, Order(aim=Aim.SURVEY, track=0, checkpoint=0, size=8), task=TRACK.task, checkpoint=TRACK.checkpoints[0]
)


def test_disagreement_is_that_of_the_actions() -> None:
    selection = Selection()
    assert selection.score(came_to(PLAN, kinds=(6, 2))) == pytest.approx(0.4286, abs=1e-4)
    assert not selection.keeps(0.4286)
    assert selection.score(came_to(PLAN, kinds=(6, 1, 1))) == pytest.approx(0.4643, abs=1e-4)
    assert selection.keeps(0.4643)


def test_variance_is_that_of_the_rewards() -> None:
    selection = Selection(signal=Signal.VARIANCE)
    assert selection.score(came_to(PLAN, solved=4)) == pytest.approx(0.25)
    assert not selection.keeps(selection.score(came_to(PLAN, solved=8)) or 0.0)
    assert selection.keeps(selection.score(came_to(PLAN, solved=1)) or 0.0)


def test_entropy_is_estimated_from_the_first_tokens() -> None:
    assert Selection(signal=Signal.ENTROPY).score(came_to(PLAN)) == pytest.approx(0.5)


def test_all_takes_everything_and_random_a_share_without_a_sample() -> None:
    everything, some = Selection(signal=Signal.ALL), Selection(signal=Signal.RANDOM, threshold=0.75)
    assert not everything.measured
    assert not some.measured
    rng = np.random.default_rng(0)
    assert everything.keeps(everything.unmeasured(rng))
    assert np.mean([some.keeps(some.unmeasured(rng)) for _ in range(2000)]) == pytest.approx(0.25, abs=0.03)


def test_one_answer_says_nothing() -> None:
    assert Selection().score(played_group(PLAN, [1.0])) is None


def test_a_threshold_is_at_least_zero() -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        Selection(threshold=-0.1)
