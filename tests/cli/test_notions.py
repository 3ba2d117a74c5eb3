"""`evenout fit` with other notions of fairness: what it writes agrees with Python, for a file and for a folder."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, GroupProbabilities, Groups
from evenout.tables.encoder import TableEncoder

FEATURES = ["home", "income", "debt", "years"]
PLAIN = {"alpha": 2.0, "random_state": 0}
ASKED = {
    "number": (["age"], {"continuous": ("age",)}, ["--continuous", "age"]),
    "each": (
        ["age", "sex"],
        {"continuous": ("age",), "cross": False, "bands": 3},
        ["--continuous", "age", "--cross", "no", "--bands", "3"],
    ),
    "strata": (["sex"], {}, ["--given", "home,years"]),
    "outcome": (["sex"], {"fairness": "equal_false_alarms"}, ["--fairness", "equal_false_alarms"]),
}


@pytest.fixture(scope="module")
def table(people):
    rng = np.random.default_rng(3)
    return people.assign(age=rng.integers(20, 70, len(people)), years=rng.normal(size=len(people)).round(3))


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")
def test_notions_agree_with_python(name, many, table, run):
    sensitive, settings, options = ASKED[name]
    if many and name == "strata":  # rows are made alike in a number in memory alone
        options = ["--given", "home"]
    others = [column for column in ("age", "sex") if column not in sensitive]
    drop = ["--drop", ",".join(["person", *others])]
    if many:
        Path("data").mkdir()
        for part, rows in enumerate(np.array_split(np.arange(len(table)), 3)):
            table.iloc[rows].to_parquet(f"data/{part}.parquet")
    else:
        table.to_csv("p.csv", index=False)
    asked = ["--sensitive", ",".join(sensitive), "--label", "fraud", "--alpha", 2, "--min-size", 10]
    result = run("fit", "data" if many else "p.csv", *asked, *drop, *options, "--json")
    assert result.exit_code == 0, result.stderr
    given = table[options[1].split(",")] if name == "strata" else None
    rules = {name: value for name, value in settings.items() if name != "fairness"}
    notion = settings.get("fairness", "demographic_parity")
    model = FairOutlierEnsemble(fairness=notion, groups=Groups(min_size=10, **rules), **PLAIN)
    rows = TableEncoder().fit_transform(table[FEATURES])
    model.fit(rows, sensitive_features=table[sensitive], given=given, labels=table["fraud"])
    summary = json.loads(result.stdout)
    assert summary["groups"] == dict(zip(model.group_names_, model.group_counts_.tolist(), strict=True))
    after = summary["bias_unseen"]["after"]
    assert after == pytest.approx(float(model.path_.bias(2.0)), rel=1e-6)
    if not many:
        scores = pd.read_csv("evenout-out/scores.csv")
        np.testing.assert_allclose(scores["fair_score"], model.outlier_scores_, rtol=1e-12)
        assert set(scores["group"]) >= set(model._result.groups.labels)


def test_an_outcome_needs_a_label(table, run):
    table.to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--id", "person", "--fairness", "equalized_odds")
    assert result.exit_code != 0
    assert "--fairness equalized_odds compares rows of known outcome, but --label is missing" in result.stderr


@pytest.mark.parametrize("many", [False, True])
def test_probabilities_are_groups(many, table, run):
    sure = np.where(table["sex"] == "f", 0.8, 0.3)
    rows = table.drop(columns=["sex", "person", "age"]).assign(women=sure, men=1 - sure)
    if many:
        Path("data").mkdir()
        rows.to_parquet("data/0.parquet")
    rows.to_csv("p.csv", index=False)
    where = "data" if many else "p.csv"
    asked = ["--sensitive", "women,men", "--probable", "--label", "fraud", "--alpha", 2]
    result = run("fit", where, *asked)
    assert result.exit_code == 0, result.stderr
    assert ("Groups are known by probability" in " ".join(result.stdout.split())) is not many
    model = FairOutlierEnsemble(**PLAIN)
    model.fit(
        TableEncoder().fit_transform(rows[FEATURES]), sensitive_features=GroupProbabilities(rows[["women", "men"]])
    )
    summary = json.loads(Path("evenout-out/summary.json").read_text())
    after = summary["bias_unseen"]["after"]
    assert after == pytest.approx(float(model.path_.bias(2.0)), rel=1e-6)
    audited = run("audit", "p.csv", "--score", "years", "--sensitive", "women,men", "--probable", "--resamples", 50)
    assert "groups are known by probability" in audited.stdout
