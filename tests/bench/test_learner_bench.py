"""The learner's benchmark: both ways take the same steps, and what is told adds up. Nothing is timed here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cairn.bench.learner import LearnerBenchOptions, bench_learner, learner_json, learner_table
from cairn.bench.trainers import TrlTrainer
from cairn.errors import SetupError
from tiny_policy import llama


@pytest.fixture
def options(tmp_path: Path) -> LearnerBenchOptions:
    model = llama()
    model.resize_token_embeddings(6000)
    model.save_pretrained(tmp_path / "model")
    return LearnerBenchOptions(
        model=tmp_path / "model", repetitions=1, answers=3, answer_tokens=4, prompt_tokens=9, alone_tokens=5, threads=1
    )


def test_siblings_and_strangers_are_measured_on_a_tree_and_flat(options: LearnerBenchOptions) -> None:
    siblings, strangers = bench_learner(options)
    told = json.loads(learner_json((siblings, strangers)))
    assert told["text"]["tree_vs_flat"] == siblings.tree_vs_flat > 0
    assert told["nothing_shared"] == strangers.tree_vs_flat > 0
    assert told["text"]["vs_trl_shared"] is None
    assert siblings.memory_ratio > 0
    assert learner_table((siblings, strangers)).row_count == 2


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
    with pytest.raises(SetupError, match="no such model"):
        TrlTrainer(python=python, model=options.model, learning_rate=1e-6, threads=1)
