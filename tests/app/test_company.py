"""Whole runs whose learner is two processes, and what is refused before they start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cairn.app.ranks import Company, follows
from cairn.config.recipe import RunConfig
from cairn.errors import ConfigError

SECONDS = 300.0
RECIPE = """
[environment]
name = "scripted"
templates = ["choose"]
[policy]
threads = 1
dtype = "float32"
[demonstrations]
per_template = 2
[imitation]
updates = 1
batch_size = 4
[reinforcement]
updates = 1
groups_per_update = 2
group_size = 4
[rollout]
concurrency = 1
invalid_limit = 3
max_turns = 2
[evaluation]
per_template = 1
"""


def cairn(*arguments: str) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cairn.cli.main", *arguments]
    told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_a_run_of_two_ranks_ends_and_one_process_goes_on_with_it(tmp_path: Path) -> None:
    recipe, run = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(RECIPE)
    told = cairn("train", str(recipe), "--ranks", "2", "--out", str(run), "--quiet")
    assert told["run"] == str(run)
    assert (run / "checkpoints/reinforce/shards").is_dir()
    assert (run / "checkpoints/reinforce/model.safetensors").is_file()
    more = cairn("train", str(recipe), "--out", str(run), "--resume", "--control", "--quiet")
    assert more["heldout_rl"] == told["heldout_rl"]
    assert more["heldout_control"] is not None
    assert not (run / "checkpoints/control/shards").exists()


def test_how_many_there_are_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="torchrun"), Company.of(2):
        pass


def test_half_an_environment_of_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with (
        pytest.raises(ConfigError, match="MASTER_PORT"),
        Company.of(1) as company,
        company.leading(RunConfig()),
    ):
        pass


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with (
        pytest.raises(ConfigError, match="this machine has 1 GPUs"),
        Company.of(2) as company,
        company.leading(RunConfig()),
    ):
        pass


@pytest.mark.parametrize(
    "table",
    [
        {"policy": {"model": "smollm2", "codec": "text", "lora_rank": 4}},
        {"reinforcement": {"optimizer": {"state": "8bit"}}},
    ],
)
def test_what_one_process_alone_can_do_is_refused(table: dict[str, dict[str, object]]) -> None:
    config = RunConfig.model_validate(table)
    with pytest.raises(ConfigError, match="leave out --ranks"), Company.of(2) as company, company.leading(config):
        pass


def test_a_process_follows_where_its_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not follows()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert not follows()
    monkeypatch.setenv("RANK", "1")
    assert follows()


def test_a_run_without_others_has_no_meeting() -> None:
    with Company().leading(RunConfig()) as meeting:
        assert meeting is None
