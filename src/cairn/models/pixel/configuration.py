"""The configuration of the pixel policy."""

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from cairn.data.pixel_vocabulary import Crop, PixelVocabulary


@strict
class PixelConfig(PreTrainedConfig):
    """Sizes of the network, the layout of its tokens and the part of the screen that it sees."""

    model_type = "cairn_pixel"

    # the screen, in pixels, and the crop that the policy sees and points at
    screen_width: int = 160
    screen_height: int = 210
    crop_left: int = 0
    crop_top: int = 50
    crop_width: int = 160
    crop_height: int = 160
    # tokens
    grid: int = 40
    words: int = 512
    span: int = 32
    characters: int = 8  # of each goal word that are looked at
    history: int = 4  # past actions that are looked at
    # the network
    patch: int = 4  # screen pixels per side of a fine cell; there is one fine cell for each location
    fine: int = 32  # channels of the fine map
    width: int = 64  # channels of the coarse map, which has half as many cells per side
    blocks: int = 5
    text_width: int = 96
    text_layers: int = 2
    pad_token_id: int | None = PixelVocabulary.PAD
    vocab_size: int = 0  # follows from the above

    def __post_init__(self, **kwargs: object) -> None:
        if self.crop_width != self.grid * self.patch or self.crop_height != self.grid * self.patch:
            raise ValueError("crop_width and crop_height must be grid x patch")
        if self.grid % 2 or self.patch % 4:
            raise ValueError("grid must be even, and patch a multiple of 4")
        self.vocab_size = self.vocabulary.size
        super().__post_init__(**kwargs)

    @property
    def vocabulary(self) -> PixelVocabulary:
        """The token layout that the model and its codec share."""
        return PixelVocabulary(grid=self.grid, words=self.words, span=self.span)

    @property
    def crop(self) -> Crop:
        """The part of the screen that the policy sees."""
        return Crop(
            screen_width=self.screen_width,
            screen_height=self.screen_height,
            left=self.crop_left,
            top=self.crop_top,
            width=self.crop_width,
            height=self.crop_height,
        )
