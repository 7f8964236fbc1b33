"""The commands that do what they are asked: their output for people and their last line for programs."""

import io
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cairn.cli.main import app
from cairn.cli.progress import ProgressSink
from cairn.data.ids import PolicyVersion
from cairn.loop import events, progress
from cairn.loop.progress import Measured, Phase
from cairn.ports import Event, LearnerStep
from cairn.testing.groups import played_group
from rollout.stage import plan_for

TINY = """
[environment]
name = "scripted"
templates = ["choose"]
[policy]
threads = 1
[demonstrations]
per_template = 2
[imitation]
updates = 1
[reinforcement]
updates = 1
groups_per_update = 1
[rollout]
max_turns = 1
[evaluation]
per_template = 1
"""


def cairn(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A tiny run, and what the command said."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.toml").write_text(TINY)
    return folder / "run", cairn("train", folder / "tiny.toml", "--out", folder / "run", "--control")


def last_line(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout.strip().splitlines()[-1])


def test_training_ends_with_a_table_a_picture_the_next_command_and_json(trained: tuple[Path, Result]) -> None:
    folder, result = trained
    told = last_line(result)
    assert {"heldout_bc", "heldout_rl", "heldout_gain", "greedy_gain", "learning_minutes"} <= told.keys()
    assert told["run"] == str(folder)
    assert told["heldout_control"] is not None
    assert (folder / "curve.png").is_file()
    lines = (folder / "evaluations.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 2
    assert "cairn eval" in result.stdout
    assert "behaviour" in result.stdout


def test_progress_goes_to_standard_error(trained: tuple[Path, Result]) -> None:
    _, result = trained
    for phase in ("demonstrate", "imitate", "reinforce", "control"):
        assert phase in result.stderr


def test_a_saved_policy_is_evaluated_with_json_on_the_last_line(trained: tuple[Path, Result]) -> None:
    folder, _ = trained
    told = last_line(cairn("eval", folder, "--tries", "2", "--per-template", "2"))
    assert told.keys() == {"sampled", "greedy"}
    sampled = told["sampled"]
    assert isinstance(sampled, dict)
    assert {"avg@2", "pass@2", "low", "high", "episodes", "lost"} <= sampled.keys()
    assert sampled["episodes"] == 4


def test_seeds_are_put_side_by_side(trained: tuple[Path, Result], tmp_path: Path) -> None:
    folder, result = trained
    one = last_line(result)
    other = shutil.copytree(folder, tmp_path / "other")
    recipe = other / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("seed = 0", "seed = 1", 1))
    both = cairn("seeds", folder, other, "--out", tmp_path / "new" / "both")
    told = last_line(both)
    assert told["heldout_rl"] == one["heldout_rl"]
    assert told["greedy_control"] == one["greedy_control"]
    assert "mean" in both.stdout
    lines = (tmp_path / "new" / "both.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 3 * 2
    assert (tmp_path / "new" / "both.png").is_file()


def test_seeds_refuses_runs_that_have_no_mean(trained: tuple[Path, Result], tmp_path: Path) -> None:
    folder, _ = trained
    assert "have the same seed, 0" in cairn("seeds", folder, folder).stderr
    other = shutil.copytree(folder, tmp_path / "other")
    recipe = other / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("seed = 0", "seed = 1", 1).replace("max_turns = 1", "max_turns = 2"))
    assert "has rollout.max_turns = 2" in cairn("seeds", folder, other).stderr


def test_seeds_want_runs(tmp_path: Path) -> None:
    refused = cairn("seeds", tmp_path / "none")
    assert refused.exit_code == 2
    assert str(tmp_path / "none") in refused.stderr


def test_quiet_commands_print_their_json_alone(trained: tuple[Path, Result]) -> None:
    folder, _ = trained
    result = cairn("eval", folder, "--per-template", "1", "--quiet", "--checkpoint", "latest")
    assert len(result.stdout.strip().splitlines()) == 1


def test_a_finished_run_that_is_resumed_says_again_what_came_out(trained: tuple[Path, Result]) -> None:
    folder, result = trained
    again = cairn("train", folder.parent / "tiny.toml", "--out", folder, "--resume", "--quiet")
    assert last_line(again) == last_line(result)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_being_stopped_saves_and_says_how_to_go_on(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    run = tmp_path / "run"
    pressed = threading.Thread(target=_send_once_there, args=(sent, run / "checkpoints" / "imitate"))
    pressed.start()
    stopped = cairn("train", tmp_path / "tiny.toml", "--out", run, "--set", "reinforcement.updates=10000", "--quiet")
    pressed.join()
    assert stopped.exit_code == 130
    assert stopped.stderr == (f"stopped and saved; go on with: cairn train {tmp_path}/tiny.toml --out {run} --resume\n")
    saved = progress.read(run / "progress.json")
    assert saved.checkpoint is not None
    assert (run / "checkpoints" / saved.checkpoint / "model.safetensors").is_file()


def _send_once_there(sent: signal.Signals, path: Path) -> None:
    deadline = time.monotonic() + 50
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(os.getpid(), sent)


def test_the_shown_configuration_is_whole_and_can_be_read_back(tmp_path: Path) -> None:
    shown = cairn("config", "show", "quickstart", "--set", "seed=7")
    (tmp_path / "again.toml").write_text(shown.stdout)
    again = cairn("config", "show", tmp_path / "again.toml")
    assert "seed = 7" in shown.stdout
    assert [line.rstrip() for line in again.stdout.splitlines()] == [
        line.rstrip() for line in shown.stdout.splitlines()
    ]


def test_the_difference_is_what_a_recipe_changes(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("seed = 3\n[policy]\nthreads = 2\n")
    shown = last_line(cairn("config", "show", tmp_path / "r.toml", "--diff", "--json"))
    assert shown == {"seed": 3}


def test_the_version_is_printed() -> None:
    assert cairn("--version").stdout.strip()


@pytest.mark.parametrize("command", [(), ("bench",), ("env",), ("config",), ("demo",)])
def test_commands_explain_themselves(command: tuple[str, ...]) -> None:
    assert "Usage" in cairn(*command, "--help").stdout


# ── the bar ───────────────────────────────────────────────────────────────────


def _step() -> LearnerStep:
    return LearnerStep(
        version=PolicyVersion(1), loss=0.5, grad_norm=1.0, learning_rate=1e-3, entropy=1.0, kl=0.0, clipped=0.0,
        effective=1.0, mismatch_mean=0.0, mismatch_max=0.0, trained_tokens=10, seconds=0.1,
    )  # fmt: skip


def test_the_bar_tells_success_speed_share_and_evaluations() -> None:
    told = io.StringIO()
    sink = ProgressSink(Console(file=told, force_terminal=True, width=200, highlight=False))
    group = played_group(plan_for(size=4), [1.0, 1.0, 0.0, 1.0])
    sink.emit(events.phase(Phase.REINFORCE, detail="rollouts"))
    sink.emit(events.round_done(1, [group], seconds=0.5, informative=1))
    sink.emit(events.update(Phase.REINFORCE, number=1, minutes=0.1, share=0.25, step=_step()))
    measured = Measured(
        phase=Phase.REINFORCE, minutes=0.1, split="held_out", greedy=True, tries=1, episodes=40, lost=3,
        mean=0.625, low=0.5, high=0.75, by_template={}, final=True,
    )  # fmt: skip
    sink.emit(events.evaluation(measured))
    sink.emit(events.notice("the expert failed"))
    sink.close()
    text = told.getvalue()
    for words in (
        "rollouts",
        "success 75.0 %",
        "8 turns/s",
        "1/1 groups",
        "25 %",
        "62.5 %",
        "3 lost outside",
        "failed",
    ):
        assert words in text


def test_events_that_the_bar_does_not_know_are_passed_over() -> None:
    sink = ProgressSink(Console(file=io.StringIO()))
    sink.emit(Event(kind="infrastructure_error", fields={}))
    sink.close()


def test_a_ledger_is_shown_by_purpose_and_task_and_two_are_compared(trained: tuple[Path, Result]) -> None:
    run, _ = trained
    shown = cairn("ledger", run)
    assert shown.exit_code == 0, shown.stderr
    assert "environment steps" in shown.stdout
    assert "scripted/choose" in shown.stdout
    both = cairn("ledger", run, run)
    assert "100.0%" in both.stdout
    totals = last_line(cairn("ledger", run, "--json"))[str(run)]
    assert isinstance(totals, dict)
    assert totals["groups"] > 0


def test_a_ledger_of_nothing_is_one_sentence(tmp_path: Path) -> None:
    result = cairn("ledger", tmp_path)
    assert result.exit_code == 2
    assert "holds no run" in result.stderr


def test_practice_may_begin_without_demonstrations(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    settings = ("demonstrations.per_template=0", "imitation.updates=0")
    result = cairn(
        "train", tmp_path / "tiny.toml", "--out", tmp_path / "run", *(w for s in settings for w in ("--set", s))
    )
    assert last_line(result)["heldout_rl"] is not None
