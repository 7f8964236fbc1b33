"""Tiny vision-language models by the names of their families."""

from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from cairn.codecs.dialects.choice import Dialect
from cairn.errors import ConfigError
from cairn.models.loading import load_vision_model
from cairn.models.vision.families import Family
from cairn.models.vision.tiny import MADE, TinySize, make_tiny

_VOCABULARY = 1024


def make_named(name: str, folder: Path, *, width: int, layers: int, image: int, seed: int) -> int:
    """Write the model, whose tokenizer knows the words of every dialect; the number of its weights."""
    kind = name.replace(".", "_").replace("-", "_")
    if kind not in set(MADE):
        known = ", ".join(family.replace("_", "-").replace("2-5", "2.5") for family in MADE)
        raise ConfigError(f"no tiny model of {name!r} can be made; there are: {known}")
    if width % 32:
        raise ConfigError(f"--width must be a multiple of 32, got {width}")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty: choose a new directory")
    disable_progress_bar()
    size = TinySize(
        width=width,
        layers=layers,
        vision_width=width // 2,
        vision_layers=layers,
        image=image,
        vocabulary=_VOCABULARY,
    )
    make_tiny(Family(kind), folder, size=size, seed=seed, lines=[dialect.grammar.system for dialect in Dialect])
    return load_vision_model(folder).num_parameters()
