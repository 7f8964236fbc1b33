"""Memory that torch has freed goes back to the machine."""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache

_CACHED_PRIMITIVES = "64"
"""Of oneDNN, which keeps compiled products by shape, 1,024 by default. Batches of pages hardly ever have a shape twice,
and a pass needs some dozens."""


def limit_caches() -> None:
    """Keep oneDNN's caches small. To be called before torch is imported."""
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _CACHED_PRIMITIVES)


def release_memory() -> None:
    """Give freed memory back; nothing where the allocator is not glibc's.

    Every batch has other shapes, so that what one freed hardly ever fits the next one: a process that trains a language
    model would grow by a gigabyte a minute. (Measured: docs/log.md.)
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
