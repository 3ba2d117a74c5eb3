"""Print a constraints file that pins every dependency to its lower bound.

With the result pip installs the oldest versions that ``pyproject.toml`` promises to work with:

    python tools/lower_bounds.py test > oldest.txt && pip install -e ".[test]" -c oldest.txt

Arguments are the extras whose dependencies are pinned too.
"""

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(project: dict[str, Any], extras: Iterable[str]) -> list[Requirement]:
    """The dependencies of the ``[project]`` table and of some of its extras, each once."""
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    return [Requirement(line) for line in dict.fromkeys(lines)]


def lower_bound(requirement: Requirement) -> str:
    """The version after ``>=``.

    >>> lower_bound(Requirement("dask[dataframe]>=2026.1.1,!=2026.3"))
    '2026.1.1'
    """
    bounds = [rule.version for rule in requirement.specifier if rule.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{requirement}: it needs one lower bound; write {requirement.name}>=VERSION")
    return bounds[0]


def read_project() -> dict[str, Any]:
    """The ``[project]`` table of ``pyproject.toml``."""
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]


if __name__ == "__main__":
    for needed in requirements(read_project(), sys.argv[1:]):
        print(f"{needed.name}=={lower_bound(needed)}")
