"""The learner's benchmark: both ways take the same steps, and what is told adds up. Nothing is timed here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cairn.bench.learner import LearnerBenchOptions, bench_learner, learner_json, learner_table
from cairn.bench.trainers import TrlTrainer
from cairn.errors import SetupError
from cairn.models.vision.tiny import TinySize
from tiny_policy import llama


@pytest.fixture
def options(tmp_path: Path) -> LearnerBenchOptions:
    model = llama()
    model.resize_token_embeddings(6000)
    model.save_pretrained(tmp_path / "model")
    return LearnerBenchOptions(
        model=tmp_path / "model",
        seeing=TinySize(image=56),
        repetitions=1,
        answers=3,
        answer_tokens=4,
        prompt_tokens=9,
        alone_tokens=5,
        threads=1,
    )


def test_siblings_strangers_and_a_screenshot_are_measured_on_a_tree_and_flat(options: LearnerBenchOptions) -> None:
    found = bench_learner(options)
    siblings, strangers, seen = found
    told = json.loads(learner_json(found))
    assert told["text"]["tree_vs_flat"] == siblings.tree_vs_flat > 0
    assert told["nothing_shared"] == strangers.tree_vs_flat > 0
    assert told["text"]["vs_trl_shared"] is None
    assert told["vlm"]["tree_vs_flat"] == seen.tree_vs_flat > 0
    assert siblings.memory_ratio > 0
    assert learner_table(found).row_count == 3


def test_one_kind_of_batch_may_be_measured_alone(options: LearnerBenchOptions) -> None:
    (seen,) = bench_learner(replace(options, model=None))
    assert json.loads(learner_json((seen,)))["text"] is None
    found = bench_learner(replace(options, seeing=None))
    assert json.loads(learner_json(found))["vlm"] is None


def test_a_python_without_trl_is_said_to_be_one(options: LearnerBenchOptions, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(SetupError, match="TRL"):
        bench_learner(replace(options, python=python))


def test_what_trl_says_is_an_error_with_its_words(options: LearnerBenchOptions, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nread line\necho \'{"error": "no such model"}\'\n')
    python.chmod(0o755)
    assert options.model is not None
    with pytest.raises(SetupError, match="no such model"):
        TrlTrainer(python=python, model=options.model, learning_rate=1e-6, threads=1)
