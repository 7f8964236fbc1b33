"""Whole runs with what fits a large model onto one device, and what is exported of them."""

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from app.test_train import recipe as pixel_recipe
from app.test_vision import request
from cairn.app.bodies import build_body
from cairn.app.export import ExportType, export
from cairn.app.run import EvaluateRequest, TrainRequest, config_of, evaluate, saved_policy, train
from cairn.app.tiny import make_named
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.data.task import Split
from cairn.errors import ConfigError, SetupError
from cairn.models.pixel.modeling import PixelForCausalLM
from cairn.testing.memory import MemoryBlobs

SPARING = """
        gradient_checkpointing = true
        lora_rank = 4
        lora_alpha = 16
"""
LEARNING = (
    "imitation.optimizer.state=8bit",
    "imitation.optimizer.schedule=cosine",
    "imitation.optimizer.final_share=0.5",
    "reinforcement.optimizer.state=bfloat16",
    "reinforcement.optimizer.schedule=linear",
    "reinforcement.kl=0.1",
    "reinforcement.reference_ema=0.9",
    "rollout.concurrency=1",
)


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "vision"
    make_named("qwen2.5-vl", path, width=64, layers=2, image=112, seed=0)
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, vision: Path) -> Path:
    """A small Llama beside the tokenizer of the vision model."""
    path = tmp_path_factory.mktemp("models") / "text"
    tokenizer = AutoTokenizer.from_pretrained(vision)
    tokenizer.save_pretrained(path)
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        shape = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
        LlamaForCausalLM(shape).save_pretrained(path)
    return path


def wanted(tmp_path: Path, model: Path, *settings: str, codec: str = "ui-tars", more: str = SPARING) -> TrainRequest:
    plain = request(tmp_path, model, codec=codec, more=more)
    return replace(plain, config=configuration.load(tmp_path / "recipe.toml", settings))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.safetensors")}


def policy_logits(config: RunConfig, saved: Path) -> torch.Tensor:
    body = build_body(config.policy, seed=config.seed, blobs=MemoryBlobs(), saved=saved)
    return logits(body.policy.model)


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(70, 110)[None]).logits.float()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("codec", ["ui-tars", "text"])
def test_a_run_with_everything_sparing_resumes_bit_for_bit_is_evaluated_and_exported(
    tmp_path: Path, vision: Path, text: Path, codec: str
) -> None:
    base = vision if codec == "ui-tars" else text
    whole = wanted(tmp_path, base, *LEARNING, codec=codec)
    asyncio.run(train(whole))
    saved = tmp_path / "run" / "checkpoints" / "reinforce"
    assert not (saved / "model.safetensors").exists()
    assert (saved / "adapter_model.safetensors").stat().st_size < (base / "model.safetensors").stat().st_size
    moments = load_file(saved / "optimiser.safetensors")
    assert {str(tensor.dtype) for name, tensor in moments.items() if name.startswith("improve/")} <= {
        "torch.bfloat16",
        "torch.float32",
    }
    rates = [
        json.loads(line)["fields"]["learning_rate"]
        for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()
        if '"update"' in line
    ]
    assert rates[:2] == pytest.approx([3e-3, 3e-3])  # the warm-up's last, and the fall's first

    half = replace(whole, folder=tmp_path / "again")
    events = _StopAfter(2)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(train(replace(half, sinks=(events,))))
    asyncio.run(train(replace(half, resume=True)))
    assert digests(tmp_path / "again" / "checkpoints" / "reinforce") == digests(saved)

    asked = EvaluateRequest(
        config=config_of(tmp_path / "run"),
        saved=saved_policy(tmp_path / "run", "reinforce"),
        split=Split.HELD_OUT,
        per_template=1,
        tries=1,
    )
    assert len(asyncio.run(evaluate(asked))) == 2

    written = export(tmp_path / "run", tmp_path / "out", checkpoint="reinforce", dtype="float32")
    kind = AutoModelForImageTextToText if codec == "ui-tars" else AutoModelForCausalLM
    read = kind.from_pretrained(tmp_path / "out")
    assert read.dtype is torch.float32
    assert written.parameters == read.num_parameters()
    expected = policy_logits(whole.config, saved)
    torch.testing.assert_close(logits(read), expected, atol=1e-4, rtol=1e-4)
    assert float((logits(kind.from_pretrained(base, dtype=torch.float32)) - expected).abs().max()) > 1e-3
    begun = tmp_path / "begun"
    begun.mkdir()
    again = wanted(begun, base, f'policy.start="{tmp_path / "out"}"', codec=codec, more="")
    asyncio.run(train(again))


class _StopAfter:
    """Cancels the run a moment after its update of that number."""

    def __init__(self, updates: int) -> None:
        self._left = updates

    def emit(self, event: object) -> None:
        if getattr(event, "kind", "") != "update":
            return
        self._left -= 1
        task = asyncio.current_task()
        if self._left == 0 and task is not None:
            asyncio.get_running_loop().call_soon(task.cancel)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("dtype", "found"), [("auto", torch.bfloat16), ("float32", torch.float32)])
def test_a_whole_model_is_exported_in_the_type_that_is_chosen(
    tmp_path: Path, text: Path, dtype: ExportType, found: torch.dtype
) -> None:
    asyncio.run(train(wanted(tmp_path, text, codec="text", more="")))
    written = export(tmp_path / "run", tmp_path / "out", checkpoint="latest", dtype=dtype)
    assert (written.model, written.dtype) == ("LlamaForCausalLM", str(found).removeprefix("torch."))
    assert written.loads_with == f'transformers.AutoModelForCausalLM.from_pretrained("{tmp_path / "out"}")'
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert read.dtype is found
    expected = policy_logits(config_of(tmp_path / "run"), saved_policy(tmp_path / "run", "latest"))
    close = 2e-2 if found is torch.bfloat16 else 1e-5  # attention is computed by another kernel
    torch.testing.assert_close(logits(read), expected, atol=close, rtol=close)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
    assert not (tmp_path / "out" / "learner.json").exists()
    with pytest.raises(ConfigError, match="is not empty"):
        export(tmp_path / "run", tmp_path / "out", checkpoint="latest", dtype="auto")
    with pytest.raises(ConfigError, match="no checkpoint at"):
        export(tmp_path / "run", tmp_path / "other", checkpoint="control", dtype="auto")


@pytest.mark.timeout(300)
def test_the_pixel_policy_is_exported_for_its_own_class(tmp_path: Path) -> None:
    asked = TrainRequest(
        config=pixel_recipe(tmp_path), folder=tmp_path / "run", resume=False, control=False, tensorboard=False
    )
    asyncio.run(train(asked))
    written = export(tmp_path / "run", tmp_path / "out", checkpoint="reinforce", dtype="auto")
    assert (written.model, written.dtype) == ("PixelForCausalLM", "float32")
    assert "PixelForCausalLM" in written.loads_with
    saved = load_file(tmp_path / "run" / "checkpoints" / "reinforce" / "model.safetensors")
    read = PixelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(read[name], weight) for name, weight in saved.items())
    assert (tmp_path / "out" / "preprocessor_config.json").is_file()


def test_an_adapter_without_adapters_in_the_recipe_is_refused(tmp_path: Path, text: Path) -> None:
    made = wanted(tmp_path, text, "imitation.updates=1", "reinforcement.updates=0", codec="text")
    asyncio.run(train(made))
    bare = tmp_path / "bare"
    bare.mkdir()
    again = wanted(bare, text, f'policy.start="{tmp_path}/run/checkpoints/imitate"', codec="text", more="")
    with pytest.raises(ConfigError, match="holds an adapter alone"):
        asyncio.run(train(again))


def test_without_peft_a_run_with_adapters_is_refused_before_it_begins(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'cairn\[lora\]'"):
        asyncio.run(train(wanted(tmp_path, text, codec="text")))
    assert not (tmp_path / "run").exists()


def test_a_gpu_that_is_not_there_is_told(tmp_path: Path, text: Path) -> None:
    if torch.cuda.is_available():
        return
    with pytest.raises(SetupError, match=r'policy\.device = "cuda"'):
        asyncio.run(train(wanted(tmp_path, text, "policy.device=cuda", codec="text", more="")))


def test_beside_adapters_frozen_weights_can_be_bfloat16_and_shared_with_the_engine(tmp_path: Path, text: Path) -> None:
    shared = wanted(
        tmp_path, text, "policy.lora_base=bfloat16", "policy.dtype=bfloat16", codec="text", more="lora_rank = 2"
    ).config
    body = build_body(shared.policy, seed=0, blobs=MemoryBlobs(), saved=None)
    assert body.engine_type is None
    types = {name.rpartition(".lora_")[1]: weight.dtype for name, weight in body.policy.model.named_parameters()}
    assert types == {"": torch.bfloat16, ".lora_": torch.float32}
    assert all(b.dtype is torch.float32 for name, b in body.policy.model.named_buffers() if "inv_freq" in name)
    apart = wanted(
        tmp_path, text, "policy.lora_base=float32", "policy.dtype=bfloat16", codec="text", more="lora_rank = 2"
    ).config
    assert build_body(apart.policy, seed=0, blobs=MemoryBlobs(), saved=None).engine_type is torch.bfloat16
