"""The direction of imports is part of the design, and a plain import stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import evenout

SOURCE = Path(evenout.__file__).parent

# A module may import from its own layer and from those before it.
LAYERS = [
    {"core"},
    {
        "storage",
        "groups",
        "parameters",
        "rows",
        "scikit",
        "output",
        "files",
        "preprocess",
        "detectors",
        "scores",
        "request",
        "backends",
        "metrics",
        "datasets",
        "fitting",
    },
    {"repair", "estimator"},
    {"auditing", "persistence"},
    {"report", "reproduce", "displays"},
    {"cli", "__main__"},
]


def _layer(module: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if module in names)


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name.split(".")[1] for name in names if name.startswith("evenout.")}
    return found


def test_modules_import_only_from_layers_below():
    checked = 0
    for file in SOURCE.rglob("*.py"):
        module = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if module == "__init__":
            continue
        for imported in _imports(file):
            assert _layer(imported) <= _layer(module), f"{module} imports {imported}"
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("module", ["evenout.core.path", "evenout"])
def test_import_loads_nothing_heavy(module):
    heavy = ("numba", "torch", "dask", "matplotlib", "plotly", "pyod", "rich", "click", "jinja2")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_command_line_prints():
    for file in SOURCE.rglob("*.py"):
        if file.name == "cli.py":
            continue
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], file
