import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "cairn"
MODULES = sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_fits_in_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_function_fits_in_50_lines(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    long = [
        f"{node.name}: {(node.end_lineno or 0) - node.lineno + 1}"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 50
    ]
    assert not long


@pytest.mark.parametrize("path", sorted(SRC.glob("*/__init__.py")), ids=lambda p: p.parent.name)
def test_a_package_init_is_empty(path: Path) -> None:
    assert path.read_text(encoding="utf-8").strip() == ""
