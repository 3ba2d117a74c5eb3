"""The direction of imports is part of the design, and a plain import stays light."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import evenout

SOURCE = Path(evenout.__file__).parent

# A module may import from its own layer and from those before it.
LAYERS = [
    {"core", "exceptions"},
    {"storage", "groups", "tables", "pages"},
    {"detectors", "gpu", "out_of_core", "metrics", "datasets"},
    {"fitting", "outcome"},
    {"reasons", "planning"},
    {"repair", "estimator"},
    {"auditing", "persistence", "watching"},
    {"report", "reproduce", "displays"},
    {"cli", "app", "__main__"},
]


@cache
def _trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text()) for file in SOURCE.rglob("*.py")}


def _layer(module: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if module in names)


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(_trees()[file]):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name.split(".")[1] for name in names if name.startswith("evenout.")}
    return found


def test_modules_import_only_from_layers_below():
    checked = 0
    for file in _trees():
        module = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if module == "__init__":
            continue
        for imported in _imports(file):
            assert _layer(imported) <= _layer(module), f"{module} imports {imported}"
            checked += 1
    assert checked > 20


def test_import_loads_nothing_heavy():
    heavy = ("numba", "torch", "dask", "matplotlib", "plotly", "pyod", "rich", "click", "jinja2")
    modules = "evenout, evenout.core.path, evenout.auditing, evenout.displays, evenout.gpu"
    code = f"import sys, {modules}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_command_line_prints():
    for file in _trees():
        if file.name == "cli.py":
            continue
        calls = [node for node in ast.walk(_trees()[file]) if isinstance(node, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], file


def test_nothing_below_the_estimator_writes_into_it():
    """A fit returns a result, and the estimator copies it: no attribute of anything given is set in the rooms below."""
    below = [room for layer in LAYERS[:4] for room in layer]
    written = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in _trees()
        if file.relative_to(SOURCE).parts[0].removesuffix(".py") in below
        for node in ast.walk(_trees()[file])
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value).split(".")[0] not in ("self", "cls", "tags")
    ]
    assert written == []
    for file in _trees():
        if file.relative_to(SOURCE).parts[0].removesuffix(".py") in below:
            assert "FairOutlierEnsemble(" not in file.read_text().replace("`FairOutlierEnsemble(", ""), file
