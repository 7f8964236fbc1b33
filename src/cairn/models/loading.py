"""How a language model comes from a directory, and how torch computes."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import ConfigError, SetupError, StoreError
from cairn.models.memory import limit_caches

if TYPE_CHECKING:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig, PreTrainedModel

_PIXEL = "cairn_pixel"
_WORTH_ROUNDING = 20_000_000
"""Weights from which bfloat16 pays on a CPU that has it: below, casts and calls cost more than the products."""


def configure_torch(*, threads: int) -> None:
    """Let torch compute on `threads` threads that sleep, not spin, while they wait, and keep its caches small.

    Call it before anything else imports torch: where torch is already there, the number of threads alone is set.
    Spinning threads starve browsers on the same cores, and with them tiny models become many times slower.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        limit_caches()
    import torch

    torch.set_num_threads(threads)


def load_language_model(
    path: Path, *, attention: str | None = None, dtype: "torch.dtype | None" = None
) -> "PreTrainedModel":
    """The causal language model of a Hugging Face directory, by default in float32; `ConfigError` where there is none.

    Attention is computed plainly on CPU, unless told otherwise: on short prompts with padding that is faster than fused
    attention, and its backward pass much faster. It holds a square of the length for every head and layer.
    """
    from transformers import AutoModelForCausalLM

    return _load(AutoModelForCausalLM, path, kind="causal language model", attention=attention, dtype=dtype)


def load_vision_model(
    path: Path, *, attention: str | None = None, dtype: "torch.dtype | None" = None
) -> "PreTrainedModel":
    """The vision-language model of a Hugging Face directory, likewise. Code from the directory is never run."""
    from transformers import AutoModelForImageTextToText

    return _load(AutoModelForImageTextToText, path, kind="vision-language model", attention=attention, dtype=dtype)


def random_language_model(config: "PreTrainedConfig", *, attention: str) -> "PreTrainedModel":
    """A causal language model with random weights, always the same; torch's own chance stays as it was."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def _load(
    auto: "type[AutoModelForCausalLM | AutoModelForImageTextToText]",
    path: Path,
    *,
    kind: str,
    attention: str | None = None,
    dtype: "torch.dtype | None" = None,
) -> "PreTrainedModel":
    require_model(path)
    import torch
    from safetensors import SafetensorError

    try:
        return auto.from_pretrained(
            path,
            dtype=dtype or torch.float32,
            attn_implementation=attention or _attention(),
            trust_remote_code=False,
            local_files_only=True,
        )
    except SafetensorError as error:
        raise StoreError(f"the model in {path} is damaged: {error}") from error
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path} holds no {kind} that can be loaded: {error}") from error


def require_model(path: Path) -> None:
    """Raise a `ConfigError` where `path` cannot be the directory of a model."""
    try:
        config = json.loads((path / "config.json").read_bytes())
    except OSError:
        raise ConfigError(f"{path} is no model directory: it has no config.json") from None
    except ValueError as error:
        raise StoreError(f"{path / 'config.json'} is damaged: {error}") from error
    if config.get("model_type") == _PIXEL:
        raise ConfigError(f'{path} holds a pixel policy, and policy.model = "path" reads language models alone')


def require_peft() -> None:
    """Raise a `SetupError` where adapters cannot be made on this machine."""
    if importlib.util.find_spec("peft") is None:
        raise SetupError("policy.lora_rank needs peft: pip install 'cairn[lora]'")


def working_type(model: "PreTrainedModel") -> "torch.dtype | None":
    """bfloat16 where this machine computes `model` faster in it, else None.

    That is a GPU, or a CPU with AMX or AVX-512 instructions for it, and a model of tens of millions of weights.
    """
    import torch

    if model.num_parameters() < _WORTH_ROUNDING:
        return None
    if model.device.type == "cuda":
        return torch.bfloat16
    able = torch.cpu.get_capabilities()
    return torch.bfloat16 if able.get("amx_bf16") or able.get("avx512_bf16") else None


def device_of(name: str) -> "torch.device":
    """Where `policy.device` says; a `SetupError` where torch cannot compute there."""
    import torch

    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise SetupError('policy.device = "cuda", and torch finds no GPU here: take "auto", or a torch built for CUDA')
    return torch.device("cuda" if found and name != "cpu" else "cpu")


def _attention() -> str:
    import torch

    if not torch.cuda.is_available():
        return "eager"
    from cairn.models.attention import register_tree_attention

    return register_tree_attention()
