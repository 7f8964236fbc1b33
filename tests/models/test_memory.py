import subprocess
import sys

import pytest

from cairn.models.memory import release_memory

FRAGMENTED = """
import ctypes, sys
from pathlib import Path
from cairn.models.memory import release_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.memset.restype = ctypes.c_void_p
libc.mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD: all of it in the heap
size = 1 << 20
blocks = [libc.malloc(ctypes.c_size_t(size)) for _ in range(200)]
for block in blocks:
    libc.memset(ctypes.c_void_p(block), 1, ctypes.c_size_t(size))
for block in blocks[:-1]:  # the last one keeps the heap from shrinking by itself
    libc.free(ctypes.c_void_p(block))
before = resident()
release_memory()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_below_what_is_in_use_goes_back_to_the_machine() -> None:
    done = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 150 << 20


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairn.models.memory._trim", lambda: None)
    release_memory()
