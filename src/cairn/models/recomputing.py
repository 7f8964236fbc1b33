"""Gradient checkpointing: layers that are computed again in the backward pass, so that only their inputs are kept.

transformers checkpoints a layer while it is in training mode, where it also drops out. So the layers alone are set to
that mode, for the passes that have a gradient; what is inside of them stays as it is for sampling.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from cairn.errors import ConfigError


def recompute(model: PreTrainedModel) -> None:
    """Let `model` compute its layers again in backward passes; a `ConfigError` where it cannot."""
    if not model.supports_gradient_checkpointing:
        raise ConfigError(f"policy.gradient_checkpointing: a {type(model).__name__} cannot compute its layers again")
    model.gradient_checkpointing_enable(
        gradient_checkpointing_kwargs={"use_reentrant": False, "preserve_rng_state": False}
    )
    model.disable_input_require_grads()  # of use to reentrant checkpoints alone
    for layer in recomputed_layers(model):
        for name in [name for name, value in vars(layer).items() if "dropout" in name and isinstance(value, float)]:
            setattr(layer, name, 0.0)  # what a layer drops out by itself, and only in training mode


def recomputed_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of which only the inputs are to be kept."""
    return [
        module
        for module in model.modules()
        if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
    ]


@contextmanager
def recomputing(layers: Sequence[nn.Module]) -> Generator[None]:
    """Within, passes that have a gradient keep the inputs of `layers` alone."""
    before = [layer.training for layer in layers]
    for layer in layers:
        layer.training = torch.is_grad_enabled()
    try:
        yield
    finally:
        for layer, mode in zip(layers, before, strict=True):
            layer.training = mode
