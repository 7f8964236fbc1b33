"""The families of vision-language models that can be policies, and what is particular about each."""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from cairn.data.coordinates import CoordinateSpace
from cairn.errors import ConfigError
from cairn.models.loading import require_model


class Family(StrEnum):
    """By the `model_type` of a configuration."""

    QWEN2_VL = "qwen2_vl"
    QWEN2_5_VL = "qwen2_5_vl"
    QWEN3_VL = "qwen3_vl"
    IDEFICS3 = "idefics3"
    SMOLVLM = "smolvlm"
    LLAVA = "llava"

    @property
    def placeholder(self) -> str:
        """The token of which an image's features take the place."""
        return "<|image_pad|>" if self.rotates_in_space else "<image>"

    @property
    def rotates_in_space(self) -> bool:
        """Whether positions have three axes: time, height and width (M-RoPE)."""
        return self in {Family.QWEN2_VL, Family.QWEN2_5_VL, Family.QWEN3_VL}

    @property
    def tiled(self) -> bool:
        """Whether a large image is cut into tiles, each with placeholders of its own."""
        return self in {Family.IDEFICS3, Family.SMOLVLM}

    @property
    def space(self) -> CoordinateSpace:
        """The coordinates in which its published models point; fractions where none were published."""
        return _SPACES.get(self, CoordinateSpace.FRACTIONS)


_SPACES: Mapping[Family, CoordinateSpace] = {
    Family.QWEN2_VL: CoordinateSpace.THOUSANDTHS,
    Family.QWEN2_5_VL: CoordinateSpace.PIXELS,
    Family.QWEN3_VL: CoordinateSpace.THOUSANDTHS,
}


def family_in(path: Path) -> Family | None:
    """The family of the model in a directory; None where it is of another kind. `ConfigError` where there is none."""
    require_model(path)
    kind = str(json.loads((path / "config.json").read_bytes()).get("model_type"))
    return Family(kind) if kind in set(Family) else None


def require_family(path: Path, *, codec: str) -> Family:
    """The family of the model in a directory; `ConfigError` where it cannot see."""
    family = family_in(path)
    if family is None:
        kind = json.loads((path / "config.json").read_bytes()).get("model_type")
        raise ConfigError(
            f'policy.codec = "{codec}" shows screenshots, and {path} holds a model of type {kind!r}, which cannot see '
            f'them: choose "text" or "thinking", or a model of type {", ".join(Family)}'
        )
    return family


def require_kind(path: Path, *, codec: str, sees: bool) -> None:
    """Raise a `ConfigError` where the model in a directory is not of the kind that the codec speaks for."""
    if sees:
        require_family(path, codec=codec)
    elif family_in(path) is not None:
        raise ConfigError(
            f"{path} holds a vision-language model: choose a dialect with screenshots in place of "
            f'policy.codec = "{codec}"'
        )
