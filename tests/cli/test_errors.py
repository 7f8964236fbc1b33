"""What a user does wrong, and what a machine lacks: one clear sentence on standard error, and a status that says so."""

import errno
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner, Result

from cairn.app import stages
from cairn.cli.main import app
from cairn.config import recipe as configuration
from cairn.errors import CairnError, CircuitOpenError, EngineError, RankError
from cairn.store.blobs import BlobFolder
from cairn.store.disk import writing
from cairn.store.run import RunWriter

SCRIPTED = (
    "environment.name=scripted",
    "environment.templates=[]",
    "policy.threads=1",
    "demonstrations.per_template=2",
    "imitation.minutes=10.0",
    "imitation.updates=1",
    "reinforcement.updates=1",
    "evaluation.per_template=1",
)


def cairn(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def sets(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def refused(result: Result, *words: str, status: int) -> None:
    """One sentence that holds every word, and nothing else."""
    told = result.stderr.strip()
    assert result.exit_code == status, told or result.exception
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1
    assert "Traceback" not in told
    for word in words:
        assert word in told
    assert result.stdout == ""


def test_an_unknown_recipe_names_the_nearest(tmp_path: Path) -> None:
    refused(cairn("train", "quickstrat", "--out", tmp_path / "r"), "'quickstrat'", "'quickstart'", status=2)


def test_a_recipe_file_that_is_not_there(tmp_path: Path) -> None:
    refused(cairn("train", tmp_path / "mine.toml"), "mine.toml", "No such file", status=2)


def test_a_recipe_that_is_not_toml(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("seed = = 3")
    refused(cairn("config", "show", tmp_path / "mine.toml"), "mine.toml", "not TOML", status=2)


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets("reinforcement.groupsize=4"))
    refused(result, "reinforcement.groupsize", "reinforcement.group_size", status=2)


def test_a_value_of_the_wrong_type(tmp_path: Path) -> None:
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets("seed=often"))
    refused(result, "seed", status=2)


def test_an_unknown_task_names_the_nearest_and_leaves_no_run_behind(tmp_path: Path) -> None:
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets('environment.templates=["click-tset"]'))
    refused(result, "'click-tset'", "'click-test'", status=2)
    assert not (tmp_path / "r").exists()


def test_an_unknown_environment_in_a_recipe(tmp_path: Path) -> None:
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets("environment.name=minwob"))
    refused(result, "environment.name", "miniwob", status=2)


@pytest.mark.parametrize("command", ["tasks", "check"])
def test_an_unknown_environment_names_the_nearest(command: str) -> None:
    refused(cairn("env", command, "minwob"), "'minwob'", "'miniwob'", status=2)


def test_a_missing_browser_is_named_with_the_fix_and_leaves_no_run_behind(tmp_path: Path) -> None:
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets("environment.browser=/nonexistent"))
    refused(result, "/nonexistent", "install", status=3)
    assert not (tmp_path / "r").exists()


def test_the_browser_may_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_BROWSER", "/missing/chrome")
    refused(cairn("train", "quickstart", "--out", tmp_path / "r"), "/missing/chrome", status=3)


def test_a_wrong_model_path_is_named_and_leaves_no_run_behind(tmp_path: Path) -> None:
    model = ("policy.model=path", f"policy.path={tmp_path}/nowhere", "policy.codec=text")
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets(*SCRIPTED, *model))
    refused(result, f"{tmp_path}/nowhere", status=2)
    assert not (tmp_path / "r").exists()


def test_a_run_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    refused(cairn("train", "quickstart", "--out", tmp_path, *sets(*SCRIPTED)), str(tmp_path), "resume", status=2)


@pytest.mark.parametrize("command", [("train", "quickstart", "--resume", "--out"), ("eval",)])
def test_what_is_no_run_cannot_be_resumed_or_evaluated(tmp_path: Path, command: tuple[str, ...]) -> None:
    refused(cairn(*command, tmp_path / "none"), str(tmp_path / "none"), status=2)


def test_resuming_needs_to_know_which_run() -> None:
    refused(cairn("train", "quickstart", "--resume"), "--out", status=2)


def test_a_resumed_run_keeps_its_recipe(tmp_path: Path) -> None:
    result = cairn("train", "quickstart", "--resume", "--out", tmp_path, *sets("seed=1"))
    refused(result, "--set", status=2)


def test_a_directory_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operating system says it; tests may run as root, who may write anywhere."""

    def deny(self: Path, *arguments: object, **more: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", deny)
    result = cairn("train", "quickstart", "--out", tmp_path / "r", *sets(*SCRIPTED))
    refused(result, "no permission", str(tmp_path / "r"), status=3)


def test_a_disk_that_is_full_while_screenshots_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: BlobFolder, data: bytes) -> str:
        with writing(tmp_path / "blob"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BlobFolder, "put", put)
    result = cairn("train", "quickstart", "--quiet", "--out", tmp_path / "r", *sets(*SCRIPTED))
    refused(result, "no space left", "resume", status=3)


def test_a_disk_that_is_full_while_the_policy_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What safetensors says of a full disk is no error of the operating system's kind."""
    import safetensors
    import transformers.modeling_utils

    def full(*arguments: object, **more: object) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(transformers.modeling_utils, "safe_save_file", full)
    result = cairn("train", "quickstart", "--quiet", "--out", tmp_path / "r", *sets(*SCRIPTED))
    refused(result, "no space left", str(tmp_path / "r" / "checkpoints"), status=3)


def test_an_unknown_checkpoint_is_named(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "r", recipe=configuration.to_toml(configuration.RunConfig()), seed=0).close()
    words = ("--checkpoint", "reinforced")
    refused(cairn("eval", tmp_path / "r", *words), "checkpoints/reinforced", "nothing is saved in this run", status=2)
    for name in ("imitate", "reinforce", "reinforce.new"):
        (tmp_path / "r" / "checkpoints" / name).mkdir(parents=True)
    asked = ("--policy", tmp_path / "r", "--out", tmp_path / "o")
    for command in (
        ("eval", tmp_path / "r"),
        ("data", "select", tmp_path / "set", "--rule", "ui-r1", *asked),
        ("data", "recover", tmp_path / "set", *asked),
        ("policy", "export", tmp_path / "r", "--out", tmp_path / "o"),
    ):
        result = cairn(*command, *words)
        refused(result, "no checkpoint at", "checkpoints/reinforced; the run has: imitate, reinforce", status=2)
        assert "reinforce.new" not in result.stderr  # which is not whole


def test_a_folder_of_stages_is_told_from_a_run_and_its_stages_are_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    for name in ("1-aim", "2-haste"):
        RunWriter.create(whole / name, recipe=configuration.to_toml(configuration.RunConfig()), seed=0).close()
        (whole / f"{name}.toml").touch()
    for command in (
        ("ledger", whole),
        ("judge", whole, "--offline"),
        ("data", "record", whole, "--out", tmp_path / "o"),
    ):
        refused(cairn(*command), "holds a run with stages", f"{whole}/1-aim, {whole}/2-haste", status=2)
    RunWriter.create(tmp_path / "runs" / "one", recipe="", seed=0).close()
    refused(cairn("ledger", tmp_path / "runs"), "holds no run: run.json is missing", status=2)


PREFERS = ("reinforcement.loss=dpo", "reinforcement.epochs=1", "reinforcement.minibatches=1")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (('environment.templates=["choose","choose"]',), "names 'choose' more than once"),
        (("demonstrations.per_template=0",), "there is nothing to imitate"),
        (("policy.codec=text",), 'the pixel policy speaks policy.codec = "pixel" alone'),
        (("policy.model=path", "policy.codec=text"), "needs policy.path"),
        (("policy.model=smollm2",), 'choose "text" or "thinking"'),
        (("seed=99999999999999999999",), "seed"),
        (("reinforcment.group_size=4",), "did you mean 'reinforcement'?"),
        (("reinforcement.estimator=reinforce_pp",), "needs reinforcement.negative_scale = 1"),
        (("reinforcement.correction_low=1",), "bounds without reinforcement.correction"),
        (
            ("reinforcement.correction=token_masked", *(f"reinforcement.correction_{n}" for n in ("low=3", "high=2"))),
            "correction_low must not be above",
        ),
        *[
            ((*PREFERS, f"reinforcement.{name}={value}"), f'"dpo" needs reinforcement.{name}')
            for name, value in (
                ("kl", 0.1),
                ("entropy", 0.1),
                ("epochs", 2),
                ("minibatches", 2),
                ("correction", "token_masked"),
                ("dual_clip", 3),
            )
        ],
    ],
)
def test_what_does_not_go_together_is_refused_before_there_is_a_directory(
    tmp_path: Path, settings: tuple[str, ...], said: str
) -> None:
    out = tmp_path / "run"
    refused(cairn("train", "quickstart", "--out", out, *sets(*SCRIPTED, *settings)), said, status=2)
    assert not out.exists()


def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"garbage")
    words = Tokenizer(models.WordLevel({"a": 0, "<end>": 1}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(str(tmp_path))
    settings = sets(*SCRIPTED, "policy.model=path", "policy.codec=text", f"policy.path={tmp_path}")
    refused(cairn("train", "quickstart", "--out", tmp_path / "run", *settings), str(tmp_path), status=1)


def test_experts_that_are_not_there_are_named() -> None:
    refused(cairn("bench", "experts", "--task", "nope"), "no expert for nope", status=2)


def test_a_run_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = cairn("train", "quickstart", "--quiet", "--out", tmp_path / "file", *sets(*SCRIPTED))
    refused(result, f"{tmp_path}/file is no folder", status=3)


@pytest.mark.parametrize(
    ("error", "code"),
    [(CircuitOpenError("lost"), 4), (EngineError("the judge is gone"), 5), (RankError("rank 1 ended"), 1)],
)
def test_what_breaks_outside_says_how_to_go_on(
    error: CairnError, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(stages, "train_in", broken)
    result = cairn("train", "quickstart", "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == code
    assert str(error) in result.stderr
    assert f"go on with: cairn train quickstart --out {tmp_path / 'run'} --resume" in result.stderr


def test_demonstrations_of_a_recipe_with_stages_are_not_collected_alone(tmp_path: Path) -> None:
    result = cairn("demo", "collect", "mobile-r1", "--out", tmp_path / "run")
    refused(result, "mobile-r1 has stages", "cairn train mobile-r1", status=2)
    assert not (tmp_path / "run").exists()
