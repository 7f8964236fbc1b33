import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "matplotlib", "tensorboard", "pandas", "gymnasium", "selenium", "playwright")
LIGHT = (
    "cairn",
    "cairn.data.sample",
    "cairn.ports",
    "cairn.config.recipe",
    "cairn.cli.main",
    "cairn.rollout.runner",
    "cairn.testing.environment_check",
    "cairn.testing.scripted",
)


@pytest.mark.parametrize("module", LIGHT)
def test_the_core_imports_nothing_heavy(module: str) -> None:
    code = f"import {module}, json, sys; print(json.dumps(sorted(sys.modules.keys() & {set(HEAVY)!r})))"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(told.stdout) == []
