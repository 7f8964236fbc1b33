import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["cairn", "cairn.data.sample", "cairn.ports"])
def test_the_core_imports_without_torch(module: str) -> None:
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
