"""Gradient checkpointing: the same gradients, computed with less kept."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MistralConfig, OPTConfig

from cairn.data.action import Click, Point
from cairn.data.trajectory import Prompt
from cairn.engines.prefixes import PrefixCache
from cairn.errors import ConfigError
from cairn.models.adapters import Adaptation, adapt
from cairn.models.pixel.configuration import PixelConfig
from cairn.models.pixel.modeling import PixelForCausalLM
from cairn.models.policy import Policy
from cairn.models.recomputing import recompute
from cairn.models.vision.families import Family
from models.test_trees import CONFIGS, SMALL, model
from tiny_vision import answered, mind, screen

SAMPLED = [np.array([8, 9, 10], np.int32), np.array([8, 11], np.int32), np.array([12], np.int32)]
PROMPT = Prompt(token_ids=np.array([5, 6, 7, 8, 9, 4, 5], np.int32), images=())
OTHER = Prompt(token_ids=np.array([5, 6, 11], np.int32), images=())
CONFIGS_OF: dict[str, Any] = {
    **CONFIGS,
    "window": MistralConfig(**SMALL, sliding_window=4),  # which reads no trees
    "opt": OPTConfig(
        vocab_size=40, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=2, dropout=0.4
    ),
}


def gradients(own: Policy, prompts: Sequence[Prompt], answers: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    own.model.zero_grad()
    images = [image for prompt in prompts for image in prompt.images]
    with own.looking(images):
        scores = own.scores(prompts, answers, [np.arange(len(a)) for a in answers], temperature=1.0)
        (scores.chosen.sum() + 0.1 * scores.entropy.sum()).backward()
    return {name: weight.grad.clone() for name, weight in own.model.named_parameters() if weight.grad is not None}


def assert_close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5 * float(gradient.abs().max()) + 1e-7, rtol=1e-4)


def kept(compute: Callable[[], object]) -> int:
    """Bytes that a forward pass keeps for its backward pass, weights not counted."""
    found: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_leaf:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compute()
    return sum(found.values())


@pytest.mark.parametrize("sharing", [True, False])
@pytest.mark.parametrize("kind", CONFIGS_OF)
def test_gradients_are_the_same_in_trees_and_flat(kind: str, *, sharing: bool) -> None:
    plain = Policy(model=model(CONFIGS_OF[kind]), sharing=sharing)
    sparing = model(CONFIGS_OF[kind])
    recompute(sparing)
    again = Policy(model=sparing, sharing=sharing)
    assert again.packs == plain.packs == (kind != "window")
    asked = ([PROMPT, PROMPT, OTHER], SAMPLED)
    assert_close(gradients(again, *asked), gradients(plain, *asked))


@pytest.mark.parametrize("family", [Family.QWEN2_5_VL, Family.QWEN3_VL, Family.IDEFICS3, Family.LLAVA])
def test_gradients_of_vision_models_are_the_same_their_towers_included(family: Family) -> None:
    plain, sparing = mind(family), mind(family)
    recompute(sparing.policy.model)
    own = Policy(model=sparing.policy.model, forbidden_ids=sparing.codec.forbidden_ids, eyes=sparing.eyes)
    first = answered(plain, [], screen(1), Click(Point(0.5, 0.25)))
    prompts = [plain.codec.prompt("press ok", [first], screen(2)), plain.codec.prompt("press ok", [], screen(3))]
    answers = [np.array([70, 71], np.int32), np.array([72], np.int32)]
    found = gradients(own, prompts, answers)
    assert any("vision" in name or "visual" in name for name in found)
    assert_close(found, gradients(plain.policy, prompts, answers))


@pytest.mark.parametrize("rank", [0, 4])
def test_less_is_kept_and_layers_are_computed_twice(rank: int) -> None:
    held: list[int] = []
    calls: list[int] = []
    for sparing in (False, True):
        whole = model(CONFIGS["llama"])
        if rank:
            adapt(whole, Adaptation(rank=rank, alpha=8.0))
        if sparing:
            recompute(whole)
        own = Policy(model=whole)
        passes = 0

        def count(*_: object) -> None:
            nonlocal passes
            passes += 1

        whole.model.layers[0].mlp.register_forward_pre_hook(count)  # a layer is left as soon as all is there
        scores: list[torch.Tensor] = []
        held.append(
            kept(
                lambda own=own, scores=scores: scores.append(
                    own.scores([PROMPT], [SAMPLED[0]], [np.arange(3)], temperature=1.0).chosen
                )
            )
        )
        scores[0].sum().backward()
        calls.append(passes)
    assert calls == [1, 2]
    assert held[1] < 0.7 * held[0]


@pytest.mark.parametrize("kind", ["llama", "window", "opt"])
def test_sampling_goes_on_with_a_cache_and_without_dropping_out(kind: str) -> None:
    plain, sparing = model(CONFIGS_OF[kind]), model(CONFIGS_OF[kind])
    recompute(sparing)
    read: list[torch.Tensor] = []
    for own in (Policy(model=plain), Policy(model=sparing)):
        with torch.inference_mode():
            prefix = PrefixCache(own, max_tokens=0).prefill([PROMPT, OTHER])
            logits, longer = own.extend(prefix, torch.tensor([[8], [9]]))
            read += [prefix.logits, logits, longer.logits]
    for own, other in zip(read[:3], read[3:], strict=True):
        torch.testing.assert_close(own, other)


def test_the_pixel_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot compute its layers again"):
        recompute(PixelForCausalLM(PixelConfig()))
