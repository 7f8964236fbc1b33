"""Between which bounds the weights of `algo.corrections` are kept where nothing else is said; without torch."""

from collections.abc import Mapping

PUBLISHED_BOUNDS: Mapping[str, tuple[float | None, float]] = {
    "token_truncated": (None, 2.0),
    "token_masked": (0.5, 5.0),
    "sequence_truncated": (None, 2.0),
    "sequence_masked": (0.0, 3.0),
    "geometric_mask": (0.999, 1.002),
}
"""By correction, the published lower and upper bound (`docs/methods.md`); None: it has no lower one."""
