"""Bounds of a correction that are unset are the published ones."""

import pytest
import torch

from cairn.algo.correction_bounds import PUBLISHED_BOUNDS
from cairn.train.objective import Correction, Objective, correction_weights

RATIOS = torch.cat([torch.linspace(0.01, 8.0, 800), torch.linspace(0.99, 1.01, 800)]).log()
EACH = torch.arange(RATIOS.shape[0])  # a sequence for every token


@pytest.mark.parametrize(
    "correction", ["token_truncated", "token_masked", "sequence_truncated", "sequence_masked", "geometric_mask"]
)
def test_the_published_bounds_are_those_of_the_learner(correction: Correction) -> None:
    low, high = PUBLISHED_BOUNDS[correction]

    def weights(low: float | None, high: float | None) -> torch.Tensor:
        objective = Objective(correction=correction, correction_low=low, correction_high=high)
        return correction_weights(objective, RATIOS, EACH)

    own = weights(None, None)
    assert torch.equal(own, weights(low, high))
    assert not torch.equal(own, weights(low, high * 0.995))
    if low:
        assert not torch.equal(own, weights(low * 1.005, high))
    if low is None:
        assert torch.equal(own, weights(1.0, high))  # a lower one is passed over, and so is refused in recipes
