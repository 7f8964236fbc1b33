"""Policies in directories: whole models, as `from_pretrained` reads them, or adapters alone."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from cairn.models.adapters import adapter, load_adapter, save_adapter


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write the weights that training moves, and what tells the others."""
    if adapter(model):
        save_adapter(model, folder)
    else:
        model.save_pretrained(folder)


@torch.no_grad()
def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Copy what `save_model` wrote of a model of the same class into `model`."""
    if adapter(model):
        load_adapter(folder, model)
        return
    saved = type(model).from_pretrained(folder, dtype=model.dtype)
    model.load_state_dict(saved.state_dict())
