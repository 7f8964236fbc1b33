"""What the tokens of an imitated answer count, by a recipe."""

import numpy as np
from jaxtyping import Float64, Int32

from cairn.codecs.token_parts import Part, token_parts
from cairn.config.tables import ImitationOptions
from cairn.errors import ConfigError
from cairn.loop.imitation import Weigh, evenly
from cairn.ports import Codec


def lesson_weights(options: ImitationOptions, codec: Codec) -> Weigh:
    """GUI-Libra's weights of thoughts, actions and places (arXiv:2602.22190), where the recipe sets any."""
    counts = {Part.THOUGHT: 1.0, Part.ACTION: options.action_weight, Part.PLACE: options.place_weight}
    if set(counts.values()) == {1.0}:
        return evenly
    parts = token_parts(codec)
    if parts is None:
        raise ConfigError(
            "imitation.action_weight and imitation.place_weight need a codec whose answers can be read in parts"
        )

    def weigh(answer: Int32[np.ndarray, " C"]) -> Float64[np.ndarray, " C"]:
        return np.array([counts[part] for part in parts(answer)])

    return weigh
