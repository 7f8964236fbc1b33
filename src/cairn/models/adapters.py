"""Low-rank adapters in a model's linear layers (LoRA, arXiv:2106.09685), through peft.

An adapted model is the same object as before, with most of its weights frozen. Its directory holds the adapter alone,
as peft writes and reads it, and a fingerprint of the weights that it was trained on.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from cairn.errors import ConfigError
from cairn.models.loading import require_peft

if TYPE_CHECKING:
    from peft import LoraConfig
    from peft.tuners.lora import LoraLayer

_NAME = "default"
"""What peft calls the only adapter of a model."""
_MARK = ".lora_"
_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_BASE = "adapter_base.json"
_PUBLISHED = "base_model.model."
"""What names of weights begin with in an adapter's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """Which adapters a model is given."""

    rank: int
    alpha: float  # what they add is multiplied with alpha / rank
    targets: tuple[str, ...] = ()  # ends of names of the language model's linear layers; none: all of them
    seed: int = 0


def adapt(model: PreTrainedModel, adaptation: Adaptation) -> None:
    """Freeze `model` in place and give its language model adapters in float32, which change nothing yet.

    What sees (a vision tower and what follows it) stays as it is.
    """
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=adaptation.rank,
        lora_alpha=cast("int", adaptation.alpha),  # peft takes any number
        target_modules=_chosen(model, adaptation.targets),
        base_model_name_or_path=model.name_or_path,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.random.manual_seed(adaptation.seed)
        inject_adapter_in_model(config, model)
    for weight in adapter(model).values():
        weight.data = weight.data.float()


def _chosen(model: PreTrainedModel, targets: Sequence[str]) -> list[str]:
    decoder = model.get_decoder()
    prefix = next(f"{name}." if name else "" for name, module in model.named_modules() if module is decoder)
    linear = [f"{prefix}{name}" for name, module in decoder.named_modules() if isinstance(module, nn.Linear)]
    for target in targets:
        if not any(name.endswith(f".{target}") for name in linear):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise ConfigError(f"policy.lora_targets: no linear layer is called {target!r}; there are: {known}")
    return [name for name in linear if not targets or any(name.endswith(f".{target}") for target in targets)]


def adapter(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The weights of a model's adapters by name; none where it has no adapters."""
    return {name: weight for name, weight in model.named_parameters() if _MARK in name}


# ── plain weights ─────────────────────────────────────────────────────────────


class PlainWeights(Mapping[str, Tensor]):
    """An adapted model's weights by the names that they have without adapters, each merged when it is asked for."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Weights are read from `model` again and again, never kept."""
        self._state = model.state_dict()
        self._layers = {f"{name}.weight": layer for name, layer in _layers(model)}
        self._names = {name.replace(".base_layer.", "."): name for name in self._state if _MARK not in name}

    @torch.no_grad()
    def __getitem__(self, name: str) -> Tensor:
        layer = self._layers.get(name)
        return self._state[self._names[name]] if layer is None else _merged(layer)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def plain_weights(model: PreTrainedModel) -> Mapping[str, Tensor]:
    """A model's weights as if it had been trained without adapters."""
    return PlainWeights(model) if adapter(model) else model.state_dict()


def merge(model: PreTrainedModel) -> None:
    """Turn an adapted model into a plain one of the same function, in place. Sums are made in float32."""
    for name, layer in list(_layers(model)):
        model.set_submodule(name, _plain_layer(layer, dtype=None))
    vars(model).pop("peft_config", None)


def plain_copy(model: PreTrainedModel, *, dtype: torch.dtype | None) -> PreTrainedModel:
    """A copy without adapters, gradients and, but for `dtype`, differences. Buffers that are not saved keep their type.

    No weight is copied twice on the way, so that a large model has room for it.
    """
    import copy

    copies: dict[int, object] = {}
    own: set[int] = set()
    with torch.no_grad():
        for _, layer in _layers(model):
            copies[id(layer)] = _plain_layer(layer, dtype=dtype)
            own |= {id(weight) for weight in cast("nn.Module", layer).parameters()}
        for weight in model.parameters():
            if id(weight) not in own:
                copies[id(weight)] = _frozen(weight, dtype)
    plain = copy.deepcopy(model, copies)
    vars(plain).pop("peft_config", None)
    if dtype is not None:
        saved = plain.state_dict().keys()
        for name, buffer in plain.named_buffers():
            if name in saved and buffer.is_floating_point():
                buffer.data = buffer.data.to(dtype)
    return plain


def _layers(model: PreTrainedModel) -> Iterator[tuple[str, "LoraLayer"]]:
    if not adapter(model):
        return
    from peft.tuners.lora import LoraLayer

    yield from ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))


def _merged(layer: "LoraLayer") -> Tensor:
    """[out, in] in float32."""
    base = cast("nn.Linear", layer.get_base_layer())
    down, up = cast("nn.Linear", layer.lora_A[_NAME]), cast("nn.Linear", layer.lora_B[_NAME])
    return base.weight.float() + layer.scaling[_NAME] * (up.weight @ down.weight)


def _plain_layer(layer: "LoraLayer", *, dtype: torch.dtype | None) -> nn.Linear:
    """`dtype`: default, that of the layer beneath."""
    base = cast("nn.Linear", layer.get_base_layer())
    bias = cast("Tensor | None", base.bias)
    plain = nn.Linear(base.in_features, base.out_features, bias=bias is not None, device="meta")
    plain.weight = nn.Parameter(_merged(layer).detach().to(dtype or base.weight.dtype), requires_grad=False)
    if bias is not None:
        plain.bias = _frozen(bias, dtype)
    return plain.train(base.training)


def _frozen(weight: Tensor, dtype: torch.dtype | None) -> nn.Parameter:
    return nn.Parameter(weight.detach().to(dtype or weight.dtype, copy=True), requires_grad=False)


# ── directories ───────────────────────────────────────────────────────────────


def is_adapter(folder: Path) -> bool:
    """Whether a saved policy is an adapter, which needs a model to be put on."""
    return (folder / _CONFIG).is_file()


def base_of(folder: Path) -> Path:
    """Where the model lay that a saved adapter was trained on."""
    try:
        return Path(json.loads((folder / _BASE).read_text(encoding="utf-8"))["path"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"the adapter in {folder} does not say what it was trained on: {error}") from error


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapters alone."""
    weights = {_PUBLISHED + _short(name): weight.detach().contiguous() for name, weight in adapter(model).items()}
    save_file(weights, folder / _WEIGHTS)
    config: LoraConfig = cast("dict[str, LoraConfig]", model.peft_config)[_NAME]
    config.save_pretrained(str(folder))
    base = {"path": model.name_or_path, "fingerprint": fingerprint(model)}
    (folder / _BASE).write_text(json.dumps(base, indent=2), encoding="utf-8")


@torch.no_grad()
def load_adapter(folder: Path, model: PreTrainedModel) -> None:
    """Put a saved adapter on an adapted model.

    A `ConfigError` where it was trained on another one, or has another shape.
    """
    base = json.loads((folder / _BASE).read_text(encoding="utf-8"))
    if base["fingerprint"] != fingerprint(model):
        raise ConfigError(f"the adapter in {folder} was trained on {base['path']}, which {model.name_or_path} is not")
    saved = load_file(folder / _WEIGHTS)
    wanted = {_PUBLISHED + _short(name): weight for name, weight in adapter(model).items()}
    shapes = [{(name, tuple(weight.shape)) for name, weight in held.items()} for held in (saved, wanted)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"the adapter in {folder} has another rank or other targets than policy.lora_rank, lora_targets"
        )
    for name, weight in wanted.items():
        weight.copy_(saved[name])


def fingerprint(model: PreTrainedModel) -> str:
    """Tells the weights beneath adapters from others: a hash of a row of each, rounded to bfloat16."""
    digest = hashlib.sha256()
    for name, layer in _layers(model):
        row = cast("nn.Linear", layer.get_base_layer()).weight[0].detach().bfloat16()
        digest.update(f"{name} {row.shape[0]}".encode())
        digest.update(row.view(torch.int16).cpu().numpy().tobytes())
    return digest.hexdigest()


def _short(name: str) -> str:
    return name.replace(f".{_NAME}.", ".")
