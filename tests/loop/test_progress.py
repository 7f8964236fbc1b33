from pathlib import Path

import pytest

from cairn.errors import ConfigError, StoreError
from cairn.loop import progress
from cairn.loop.progress import Measured, Phase, Progress
from cairn.loop.summary import summarise


def measured(phase: Phase, *, greedy: bool, mean: float, final: bool = True, split: str = "held_out") -> Measured:
    return Measured(
        phase=phase,
        minutes=1.0,
        split=split,
        greedy=greedy,
        tries=1,
        episodes=40,
        lost=1,
        mean=mean,
        low=mean - 0.1,
        high=mean + 0.1,
        by_template={"t": mean},
        final=final,
        reward=mean,
        answer_tokens=100 * mean,
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    now = Progress(
        phase=Phase.REINFORCE,
        updates=7,
        seconds=1.25,
        imitated=3,
        checkpoint="latest",
        scheduler={"count": 4, "visits": {"t": 2}},
        phase_seconds={Phase.IMITATE: 60.5},
        measured=(measured(Phase.IMITATE, greedy=True, mean=0.25),),
    )
    progress.write(now, tmp_path / "p.json")
    assert progress.read(tmp_path / "p.json") == now


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"phase": "resting"}')
    with pytest.raises(StoreError, match=r"p\.json is damaged"):
        progress.read(tmp_path / "p.json")


def test_a_missing_file_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing was trained in this run yet"):
        progress.read(tmp_path / "p.json")


def test_the_summary_compares_the_ends_of_the_phases() -> None:
    done = Progress(
        phase=Phase.DONE,
        phase_seconds={Phase.IMITATE: 60.0, Phase.REINFORCE: 120.0, Phase.CONTROL: 120.0},
        measured=(
            measured(Phase.IMITATE, greedy=False, mean=0.1, final=False),
            measured(Phase.IMITATE, greedy=False, mean=0.3),
            measured(Phase.IMITATE, greedy=True, mean=0.4),
            measured(Phase.REINFORCE, greedy=False, mean=0.9, split="train"),
            measured(Phase.REINFORCE, greedy=False, mean=0.8),
            measured(Phase.REINFORCE, greedy=True, mean=0.7),
        ),
    )
    summary = summarise(done)
    assert (summary.heldout_bc, summary.heldout_rl, summary.greedy_bc, summary.greedy_rl) == (0.3, 0.8, 0.4, 0.7)
    assert summary.heldout_gain == pytest.approx(0.5)
    assert summary.greedy_gain == pytest.approx(0.3)
    assert (summary.heldout_control, summary.greedy_control) == (None, None)
    assert (summary.episodes, summary.lost, summary.learning_minutes) == (40, 4, 3.0)
    assert (summary.reward_bc, summary.reward_rl) == (0.3, 0.8)
    assert (summary.tokens_bc, summary.tokens_rl) == (pytest.approx(30), pytest.approx(80))


def test_what_was_not_measured_is_none() -> None:
    summary = summarise(Progress())
    assert (summary.heldout_bc, summary.heldout_gain, summary.episodes) == (None, None, 0)
    assert (summary.reward_bc, summary.tokens_rl) == (None, None)
