"""Check that no lower bound in ``pyproject.toml`` admits a version with a known security flaw.

Works without a network, from the advisories in ``advisories.toml``. Every dependency, also of every extra, must have a
lower bound at or above the first fixed version of each of its advisories, except where the functions concerned do not
occur in the sources.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from lower_bounds import lower_bound, read_project, requirements

ADVISORIES = Path(__file__).with_name("advisories.toml")
SOURCES = Path(__file__).parents[1] / "src"


def faults(project: dict[str, Any], advisories: list[dict[str, Any]], sources: str) -> Iterator[str]:
    """One line for each dependency without a lower bound, and for each bound below a fixed version."""
    for requirement in requirements(project, project["optional-dependencies"]):
        try:
            bound = Version(lower_bound(requirement))
        except ValueError as error:
            yield str(error)
            continue
        for advisory in advisories:
            concerned = canonicalize_name(advisory["package"]) == canonicalize_name(requirement.name)
            if concerned and bound < Version(advisory["fixed"]) and _reached(advisory, sources):
                yield (
                    f"{requirement} admits {advisory['id']} ({advisory['what']}); "
                    f"raise it to {advisory['package']}>={advisory['fixed']} ({advisory['source']})"
                )


def read_sources() -> str:
    """The text of every module of the package."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py")))


def _reached(advisory: dict[str, Any], sources: str) -> bool:
    return "unused" not in advisory or any(name in sources for name in advisory["unused"])


if __name__ == "__main__":
    listed = tomllib.loads(ADVISORIES.read_text(encoding="utf-8"))
    found = list(faults(read_project(), listed["advisory"], read_sources()))
    print(
        *found,
        f"{len(listed['advisory'])} advisories up to {listed['compiled']}, {len(found)} faults",
        sep="\n",
    )
    sys.exit(bool(found))
