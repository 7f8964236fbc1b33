"""Rollout benchmark: what the shares mean, and prompts that differ without differing in cost."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cairn.bench.prefill import Prefill, different, measure_prefill
from cairn.bench.rollout import RolloutBench, pace, rollout_json, rollout_table
from cairn.data.trajectory import Prompt, Seconds
from cairn.ports import Sampling
from cairn.testing.groups import played_group
from cairn.testing.memory import MemoryBlobs
from cairn.testing.scripted_policy import ScriptedEngine, replay
from rollout.stage import plan_for


def test_the_shares_are_of_the_episodes_wall_time_and_add_up() -> None:
    trajectory = played_group(plan_for(), [1.0]).members[0].trajectory
    spent = replace(trajectory, seconds=Seconds(opening=1.0, environment=2.0, engine=4.0, closing=0.5))
    found = pace(2, [(spent, 8.0), (spent, 8.0)], turns_per_s=3.0)
    assert (found.engine, found.environment, found.opening) == (0.5, 0.25, 0.125)
    assert found.engine + found.environment + found.opening + found.waiting == pytest.approx(1.0)
    assert (found.episodes, found.lost) == (2, 0)


def picture(blobs: MemoryBlobs) -> Prompt:
    packed = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(packed, "PNG")
    return Prompt(token_ids=np.arange(9, dtype=np.int32), images=(blobs.put(packed.getvalue()),))


def test_prompts_with_pictures_are_told_apart_by_the_hash_of_equal_pixels() -> None:
    blobs = MemoryBlobs()
    prompt = picture(blobs)
    variants = [different(prompt, n, blobs=blobs) for n in range(4)]
    assert len({v.images for v in variants}) == 4
    assert all((v.token_ids == prompt.token_ids).all() for v in variants)
    pixels = {Image.open(io.BytesIO(blobs.get(v.images[0]))).tobytes() for v in variants}
    assert len(pixels) == 1


def test_prompts_of_text_are_told_apart_by_one_known_token() -> None:
    prompt = Prompt(token_ids=np.array([5, 9, 7, 11, 6], np.int32), images=())
    variants = [different(prompt, n, blobs=MemoryBlobs()) for n in range(8)]
    assert len({v.token_ids.tobytes() for v in variants}) == 8
    assert all(v.token_ids.shape == prompt.token_ids.shape and v.token_ids.max() <= 11 for v in variants)


async def test_both_sides_answer_equally_many_prompts_in_turn() -> None:
    engine = ScriptedEngine(replay(1))
    blobs = MemoryBlobs()
    found = await measure_prefill(engine, [picture(blobs)], blobs=blobs, sampling=Sampling(), siblings=4, repetitions=2)
    assert len(engine.prompts) == (1 + 2) * 2 * 4
    assert len({p.images for p in engine.prompts[:4]}) == 1
    assert len({p.images for p in engine.prompts[4:8]}) == 4
    assert found.low <= found.speedup <= found.high


def test_the_result_is_one_line_of_json() -> None:
    one = pace(1, [], turns_per_s=0.0)
    shared = Prefill(prompts=1, siblings=8, shared=10.0, unshared=5.0, speedup=2.0, low=1.5, high=2.5)
    bench = RolloutBench(policy="pixel, untrained", paces=(replace(one, turns_per_s=12.34),), prefill=shared, cpus=2)
    told = json.loads(rollout_json(bench))
    assert told["turns_per_s"] == {"1": 12.3}
    assert told["shared_prefill"]["speedup"] == 2.0
    assert rollout_table(bench).row_count == 1
