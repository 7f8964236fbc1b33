"""Learners of two ranks, each a process of its own: what they compute is what one computes."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cairn.train.learner import GradientLearner
from cairn.train.ranks import shares

PROGRAM = Path(__file__).with_name("two_ranks.py")
SECONDS = 300.0

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.slow, pytest.mark.xdist_group("ranks")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What two processes wrote."""

    folder: Path
    statuses: Sequence[int]
    errors: Sequence[str]

    def steps(self, name: str) -> list[dict[str, float]]:
        return json.loads((self.folder / name / "steps.json").read_text())

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        return load_file(self.folder / name / "weights.safetensors")


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_ranks", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TWO = load_program()


LIVES = ("plain", "steps", "improved", "prefer", "vision", "pixel", "resumed", "from one", "infinite")


def run(names: str, folder: Path, *, count: int = 2) -> Ranks:
    """All ranks, to their ends."""
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.append(_process(names, 0, count, 0, folder))
        begun = time.monotonic()
        while not (folder / "port").exists():
            assert processes[0].poll() is None, processes[0].communicate()[1]
            assert time.monotonic() - begun < SECONDS
            time.sleep(0.05)
        port = int((folder / "port").read_text())
        processes += [_process(names, rank, count, port, folder) for rank in range(1, count)]
        told = [one.communicate(timeout=SECONDS)[1] for one in processes]
    finally:
        for one in processes:
            one.kill()
            one.wait()
    return Ranks(folder=folder, statuses=[one.returncode for one in processes], errors=told)


def _process(names: str, rank: int, count: int, port: int, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), names, str(rank), str(count), str(port), str(folder)]
    paths = os.pathsep.join([*sys.path, str(PROGRAM.parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """Several learners' lives, one after another, in one pair of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    alone = TWO.learner("one")
    TWO.updates("one", alone)
    alone.save(folder / "one" / "saved")
    both = run(",".join(LIVES), folder)
    assert both.statuses == [0, 0], both.errors
    return both


def assert_equal(found: Ranks, name: str, alone: GradientLearner) -> None:
    """What two ranks told and came to under that name is what `alone` comes to."""
    steps = [TWO.told(step) for step in TWO.updates(name.partition("/")[0], alone)]
    for ours, theirs in zip(found.steps(name), steps, strict=True):
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    weights = alone.policy.model.state_dict()
    told = found.weights(name)
    assert told.keys() == weights.keys()
    for weight, value in weights.items():
        torch.testing.assert_close(told[weight], value, atol=2e-5, rtol=1e-4, msg=weight)


@pytest.mark.parametrize("name", ["plain", "steps", "improved", "prefer", "vision", "pixel"])
def test_two_ranks_compute_what_one_does(found: Ranks, name: str) -> None:
    assert_equal(found, name, TWO.learner(name))


def test_what_two_ranks_saved_goes_on_in_one(found: Ranks) -> None:
    alone = TWO.learner("plain")
    alone.load(found.folder / "plain/saved")
    assert alone.version == 4
    assert_equal(found, "plain/later", alone)


def test_what_two_ranks_saved_goes_on_in_two(found: Ranks) -> None:
    assert found.steps("resumed") == found.steps("plain/later")


def test_what_two_ranks_saved_goes_on_in_three(found: Ranks, tmp_path: Path) -> None:
    (tmp_path / "plain").symlink_to(found.folder / "plain")
    three = run("resumed", tmp_path, count=3)
    assert three.statuses == [0, 0, 0], three.errors
    for ours, theirs in zip(three.steps("resumed"), found.steps("plain/later"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


def test_what_two_ranks_saved_is_read_as_a_whole_model(found: Ranks) -> None:
    whole = AutoModelForCausalLM.from_pretrained(found.folder / "plain/saved").state_dict()
    for name, weight in found.weights("plain").items():
        assert torch.equal(whole[name], weight), name


def test_what_one_rank_saved_goes_on_in_two(found: Ranks) -> None:
    alone = TWO.learner("one")
    alone.load(found.folder / "one/saved")
    assert_equal(found, "from one", alone)


def test_a_reference_policy_is_saved_and_read_with_the_rest(found: Ranks) -> None:
    alone, resumed = TWO.learner("steps"), TWO.learner("steps")
    TWO.updates("steps", alone)
    resumed.load(found.folder / "steps/saved")
    a, b = (TWO.updates("steps", one, count=1)[-1] for one in (alone, resumed))
    assert a.loss == pytest.approx(b.loss, rel=1e-3)


def test_a_gradient_that_is_not_finite_on_one_rank_moves_no_weight_on_any(found: Ranks) -> None:
    for rank in (0, 1):
        assert "not finite" in (found.folder / f"infinite/{rank}.txt").read_text()


def test_a_rank_that_is_killed_ends_the_others_with_what_it_said(tmp_path: Path) -> None:
    found = run("left", tmp_path)
    assert found.statuses == [0, -9], found.errors[0]
    assert "rank 1: OutOfMemoryError: told before it ended" in (tmp_path / "left/error.txt").read_text()


def test_where_rank_0_is_killed_the_others_end_and_say_so(tmp_path: Path) -> None:
    found = run("dies", tmp_path)
    assert found.statuses == [-9, 1]
    assert "RankError: another process of this learner has ended" in found.errors[1]


@given(
    parts=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    count=st.integers(1, 5),
)
def test_every_part_is_computed_by_one_rank_and_no_rank_has_two_more_than_another(parts: list[int], count: int) -> None:
    numbered = [[i] for i in range(len(parts))]
    found = shares(numbered, parts, count=count)
    assert sorted(i for own in found for (i,) in own) == list(range(len(parts)))
    lengths = [len(own) for own in found]
    assert max(lengths) - min(lengths) <= 1
    assert lengths[0] == max(lengths)
