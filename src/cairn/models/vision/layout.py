"""What an image becomes in a prompt: the text that stands for it, and how many placeholders that holds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from transformers import BaseImageProcessor, PreTrainedConfig
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from cairn.errors import ConfigError
from cairn.models.vision.families import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One image of one size."""

    width: int  # of the image as the model sees it
    height: int
    text: str
    tokens: int  # placeholders in `text`
    grid: tuple[int, int, int] = (1, 1, 1)  # patches in time, height and width, where positions have three axes


class Layouts(Protocol):
    """How one model lays out images."""

    def of(self, width: int, height: int) -> Layout:
        """The layout of an image of that size; `ConfigError` where the model cannot take one."""
        ...


def layouts_for(family: Family, *, config: PreTrainedConfig, processor: BaseImageProcessor) -> Layouts:
    """As the processor of the model's own class would expand placeholders."""
    if family.rotates_in_space:
        return _Patched(cast("_Resizing", processor), family.placeholder)
    if family.tiled:
        return _Tiled(cast("_Tiling", processor), cast("_TiledConfig", config), family.placeholder)
    return _Fixed(cast("_FixedConfig", config), family.placeholder)


class _Bounds(Protocol):
    shortest_edge: int
    longest_edge: int


class _Resizing(Protocol):
    patch_size: int
    merge_size: int
    size: _Bounds


class _Patched:
    """Any size, rounded to whole patches, one placeholder for each square of them."""

    def __init__(self, processor: _Resizing, placeholder: str) -> None:
        self._patch, self._merge = processor.patch_size, processor.merge_size
        self._least, self._most = processor.size.shortest_edge, processor.size.longest_edge
        self._placeholder = placeholder

    def of(self, width: int, height: int) -> Layout:
        try:
            down, across = smart_resize(height, width, self._patch * self._merge, self._least, self._most)
        except ValueError as error:
            raise ConfigError(f"the model cannot take a screenshot of {width} x {height} pixels: {error}") from error
        rows, columns = down // self._patch, across // self._patch
        tokens = rows * columns // self._merge**2
        return Layout(
            width=across, height=down, text=self._placeholder * tokens, tokens=tokens, grid=(1, rows, columns)
        )


class _Tiling(Protocol):
    @property
    def get_number_of_image_patches(self) -> Callable[[int, int, object], tuple[int, int, int]]: ...


class _VisionShape(Protocol):
    image_size: int
    patch_size: int
    model_type: str


class _TiledConfig(Protocol):
    vision_config: _VisionShape
    scale_factor: int


class _Tiled:
    """Rows of tiles and then the whole image, each with the same number of placeholders between marks."""

    def __init__(self, processor: _Tiling, config: _TiledConfig, placeholder: str) -> None:
        vision = config.vision_config
        self._count = processor.get_number_of_image_patches
        self._each = (vision.image_size // vision.patch_size) ** 2 // config.scale_factor**2
        self._placeholder = placeholder

    def of(self, width: int, height: int) -> Layout:
        _, rows, columns = self._count(height, width, {})
        mark, run = "<fake_token_around_image>", self._placeholder * self._each
        tiles = "".join(
            "".join(f"{mark}<row_{row}_col_{column}>{run}" for column in range(1, columns + 1)) + "\n"
            for row in range(1, rows + 1)
        )
        whole = f"{mark}<global-img>{run}{mark}"
        text = f"{tiles}\n{whole}" if rows and columns else whole
        return Layout(width=width, height=height, text=text, tokens=self._each * (rows * columns + 1))


class _FixedConfig(Protocol):
    vision_config: _VisionShape
    vision_feature_select_strategy: str


class _Fixed:
    """One size for all."""

    def __init__(self, config: _FixedConfig, placeholder: str) -> None:
        vision = config.vision_config
        has_class_token = vision.model_type == "clip_vision_model"
        dropped = config.vision_feature_select_strategy == "default"
        self._side = vision.image_size
        self._tokens = (vision.image_size // vision.patch_size) ** 2 + has_class_token - dropped
        self._placeholder = placeholder

    def of(self, width: int, height: int) -> Layout:
        del width, height
        return Layout(width=self._side, height=self._side, text=self._placeholder * self._tokens, tokens=self._tokens)
