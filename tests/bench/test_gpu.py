"""The check of a GPU, dry: every part runs, and what it ran on is said."""

import json

import pytest
import torch

from cairn.bench import gpu
from cairn.models.trees import TreeReader


def run(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]], str]:
    status = gpu.main(["--dry-run"])
    told = capsys.readouterr()
    return status, json.loads(told.out.splitlines()[-1]), told.err


def test_dry_every_part_runs_on_the_cpu_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    status, told, said = run(capsys)
    assert status == 0, told
    assert told["ok"] is True
    assert told["dry_run"] is True
    assert "CPU" in str(told["device"])
    assert "says nothing of a GPU" in said
    assert float(str(told["attention"]["largest_difference"])) < 1e-5
    assert float(str(told["tree"]["tree_vs_flat"])) > 0
    assert float(str(told["vision"]["grad_norm"])) > 0
    assert "mean" in told["precision"]


def test_a_part_that_fails_is_told_and_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(TreeReader, "read", broken)
    status, told, said = run(capsys)
    assert status == 1
    assert told["ok"] is False
    assert told["attention"]["ok"] is False
    assert "no kernel image" in str(told["attention"]["error"])
    assert "attention: NOT WELL" in said
    assert set(told) >= {"attention", "tree", "precision", "vision"}
