"""The command line in this process, and small tables with two protected columns for it."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evenout.cli import main

FAST = ("--alpha", "2", "--quiet")  # no search for alpha


def make_people(n=360, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"person": [f"p{i:03}" for i in range(n)]})
    people["sex"] = rng.choice(["f", "m", "x"], n, p=[0.4, 0.4, 0.2])
    people["age"] = rng.choice(["old", "young"], n)
    people["home"] = rng.choice(["own", "rent"], n)
    wide = np.where(people["sex"] == "f", 3.0, 1.0)
    people["income"] = (wide * rng.normal(size=n)).round(3)
    people["debt"] = (wide * rng.normal(size=n)).round(3)
    people["fraud"] = (np.abs(people["income"]) > 2.5).astype(int)
    people.loc[5, ["income", "home"]] = [np.nan, None]
    return people


@pytest.fixture(autouse=True, scope="session")
def quick_page():
    """No page is drawn in this process; `test_process` has the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenout.report.write_report", lambda _, path, **__: path.write_text("page"))
        yield


@pytest.fixture(scope="session")
def people() -> pd.DataFrame:
    return make_people()


@pytest.fixture(scope="session")
def new_people() -> pd.DataFrame:
    return make_people(n=40, seed=1)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run ``evenout`` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture(scope="session")
def fitted(people, quick_page, tmp_path_factory):  # noqa: ARG001
    """The folder that ``evenout fit`` wrote for `people`."""
    folder = tmp_path_factory.mktemp("fitted")
    people.to_csv(folder / "people.csv", index=False)
    arguments = ["fit", "people.csv", "--sensitive", "sex,age", "--id", "person", "--label", "fraud"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(main, [*arguments, *FAST], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "")
    return folder / "evenout-out"
