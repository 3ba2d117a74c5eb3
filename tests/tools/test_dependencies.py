"""The scripts that read dependencies, on small projects whose answer is known."""

import importlib
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

TOOLS = Path(__file__).parents[2] / "tools"
ADVISORY = {"id": "X-1", "package": "Tool_Box", "fixed": "1.10", "what": "runs code", "source": "its page"}


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("audit_dependencies"), importlib.import_module("lower_bounds")


def project(*lines, **extras):
    return {"dependencies": list(lines), "optional-dependencies": extras}


def test_requirements_are_those_of_the_package_and_of_the_extras_asked_for(tools):
    _, bounds = tools
    found = bounds.requirements(project("a>=1", "b>=2", test=["a>=1", "c[x]>=3"], docs=["d>=4"]), ["test"])
    assert [(need.name, bounds.lower_bound(need)) for need in found] == [("a", "1"), ("b", "2"), ("c", "3")]


@pytest.mark.parametrize("line", ["a", "a==1", "a<3", "a>1", "a>=1,>=2"])
def test_a_dependency_without_one_lower_bound_is_a_fault(line, tools):
    audit, bounds = tools
    with pytest.raises(ValueError, match="it needs one lower bound; write a>=VERSION"):
        bounds.lower_bound(Requirement(line))
    assert len(list(audit.faults(project(line), [], ""))) == 1


@pytest.mark.parametrize(
    ("line", "count"), [("tool-box>=1.9", 1), ("tool-box>=1.10", 0), ("tool-box>=2", 0), ("tool>=1", 0)]
)
def test_a_bound_below_the_fixed_version_is_a_fault_in_extras_too(line, count, tools):
    audit, _ = tools
    for tree in (project(line), project(test=[line])):
        found = list(audit.faults(tree, [ADVISORY], ""))
        assert len(found) == count
        assert all("X-1" in words and "raise it to Tool_Box>=1.10" in words for words in found)


def test_an_advisory_on_unused_functions_binds_from_the_day_they_are_used(tools):
    audit, _ = tools
    advisory = ADVISORY | {"unused": ["box.load", "box.run"]}
    for sources, count in (("import box", 0), ("box.run(x)", 1)):
        assert len(list(audit.faults(project("tool-box>=1"), [advisory], sources))) == count


def test_every_advisory_is_complete_and_names_a_dependency(tools):
    _, bounds = tools
    listed = tomllib.loads((TOOLS / "advisories.toml").read_text())
    table = bounds.read_project()
    names = {need.name for need in bounds.requirements(table, table["optional-dependencies"])}
    for advisory in listed["advisory"]:
        assert {"id", "package", "fixed", "what", "source"} <= advisory.keys()
        assert advisory["package"] in names
        assert advisory["source"].endswith(advisory["id"])
        assert Version(advisory["fixed"]).release > (0,)
    ids = [advisory["id"] for advisory in listed["advisory"]]
    assert len(set(ids)) == len(ids)
