"""What an update takes is counted as it is."""

import json

import pytest

from cairn.bench.update_memory import WAYS, UpdateShape, measure, updates_json

TINY = UpdateShape(
    width=64, layers=2, vocabulary=256, prompt_tokens=20, answers=2, answer_tokens=4, repetitions=1, threads=1
)


@pytest.mark.timeout(180)
def test_weights_and_moments_are_counted_by_the_byte() -> None:
    found = {way.name: measure(TINY, way) for way in WAYS}
    whole = found["all weights"]
    assert whole.moments_mb == pytest.approx(2 * whole.weights_mb, rel=1e-2)
    assert found["all weights, checkpointing, bfloat16 moments"].moments_mb < 0.6 * whole.moments_mb
    eight = found["all weights, checkpointing, 8-bit moments"].moments_mb
    assert eight < found["all weights, checkpointing, bfloat16 moments"].moments_mb
    adapters = found["LoRA 16"]
    assert adapters.weights_mb > whole.weights_mb
    assert adapters.moments_mb == pytest.approx(2 * (adapters.weights_mb - whole.weights_mb), rel=1e-2)
    half = found["LoRA 16, checkpointing, bfloat16 base"]
    assert adapters.weights_mb - half.weights_mb == pytest.approx(whole.weights_mb / 2)
    said = json.loads(updates_json(tuple(found.values())))
    assert said.keys() == {way.name for way in WAYS}
    assert said["all weights"]["peak_share"] == 1.0
