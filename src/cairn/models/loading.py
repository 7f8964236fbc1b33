"""How a model comes from a directory, and in what precision and on how many threads it runs."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import ConfigError, SetupError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def configure_threads(threads: int) -> None:
    """Let torch compute on `threads` threads that sleep, not spin, while they wait.

    Call it before anything else imports torch. Spinning threads starve the browsers on the same cores, and tiny models
    become ten times slower themselves. Where torch is already there the number is set, the waiting policy cannot be.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch  # noqa: PLC0415 - the line above must come first

    torch.set_num_threads(threads)
