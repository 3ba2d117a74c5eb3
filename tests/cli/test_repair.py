"""A finished score is repaired from the command line, and every saved model scores new rows there."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from evenout import BlindRepair, FairLOF, FairOutlierEnsemble, ScoreRepair
from evenout.cli import main
from evenout.metrics import flag_rate_ratio
from evenout.persistence import load_model, save_model

N = 1500


def vendor(seed, n=N) -> pd.DataFrame:
    """A score that goes with a feature that goes with the sex."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"person": [f"p{i:04}" for i in range(n)], "sex": rng.choice(["f", "m"], n)})
    table["income"] = rng.normal(size=n) + 1.2 * (table["sex"] == "f")
    table["job"] = rng.choice(["clerk", "cook"], n)
    table["debt"] = rng.normal(size=n)
    table["risk"] = table["income"] + table["debt"] + rng.normal(size=n)
    table["fraud"] = np.where(table["debt"] > 1.2, "yes", "no")
    return table


FILES = ("--score", "risk", "--sensitive", "sex", "--id", "person", "--label", "fraud")


@pytest.fixture(scope="module")
def repaired(tmp_path_factory):
    """Folders of a blind and of an aware repair."""
    folder = tmp_path_factory.mktemp("repaired")
    vendor(0).to_csv(folder / "vendor.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for out, more in {"blind": (), "aware": ("--aware",)}.items():
            result = CliRunner().invoke(main, ["repair", "vendor.csv", *FILES, "--out", out, *more])
            assert result.exit_code == 0, result.output
            (folder / f"{out}.txt").write_text(result.stdout)
    return folder


@pytest.mark.parametrize("kind", ["blind", "aware"])
def test_scores_model_and_summary_say_the_same(repaired, kind):
    scores = pd.read_csv(repaired / kind / "scores.csv")
    summary = json.loads((repaired / kind / "summary.json").read_text())
    table, model = vendor(0), load_model(repaired / kind / "model.skops")
    np.testing.assert_allclose(scores["base_score"], table["risk"])
    assert scores["id"].tolist() == table["person"].tolist()
    if kind == "aware":
        fair = model.transform(table["risk"], sensitive_features=table["sex"])
        assert isinstance(model, ScoreRepair)
        assert summary["strength"] == 1.0
    else:
        fair = model[-1].scores_
        assert isinstance(model[-1], BlindRepair)
        assert summary["columns"]["features"] == ["income", "job", "debt"]
        assert summary["resemblance"] == model[-1].lambda_
        rates = model[-1].flag_rates_[:, 1]
        assert summary["flag_rate_ratio"]["after"] == pytest.approx(rates.min() / rates.max())
    np.testing.assert_allclose(scores["fair_score"], fair)
    assert summary["flagged"] == scores["flagged"].sum()
    assert summary["flag_rate_ratio"]["after"] > summary["flag_rate_ratio"]["before"] + 0.15
    assert summary["auc"]["after"] > 0.6
    printed = (repaired / f"{kind}.txt").read_text()
    assert "Lowest / highest flag rate" in printed
    assert len(printed.splitlines()) <= 20


@pytest.mark.parametrize("kind", ["blind", "aware"])
def test_new_rows_of_the_population_are_flagged_more_evenly(repaired, kind, run, tmp_path):
    new = vendor(1, 4000)
    new.drop(columns=["sex"] if kind == "blind" else ["income", "job"]).to_csv(tmp_path / "new.csv", index=False)
    result = run("score", repaired / kind / "model.skops", "new.csv", "--id", "person", "--out", "out.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out.csv")
    before, after = (flag_rate_ratio(y, sensitive_features=new["sex"]) for y in (new["risk"], found["fair_score"]))
    assert after > before + 0.1


def test_options_that_do_not_go_together_are_refused(run, tmp_path):
    vendor(0, 100).to_csv(tmp_path / "vendor.csv", index=False)
    for more, words in {
        ("--aware", "--given", "job"): "--aware does not go with --given; leave one of them out",
        ("--aware", "--flag-rate-ratio", "0.9"): "--aware does not go with --flag-rate-ratio",
        ("--aware", "--bands", "7"): "--aware does not go with --bands; leave one of them out",
        ("--score", "income"): "--score is given more than once",
        ("--drop", "risk", "--keep", "risk"): "column 'risk' is given as --drop and as --keep",
        ("--id", "risk"): "'risk' is given as --id and as --score; choose one",
    }.items():
        result = run("repair", "vendor.csv", "--score", "risk", "--sensitive", "sex", *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
    gap = vendor(0, 100).assign(risk=[np.nan, *range(99)])
    gap.to_csv(tmp_path / "gap.csv", index=False)
    result = run("repair", "gap.csv", "--score", "risk", "--sensitive", "sex")
    assert "column 'risk' (--score) is empty in row 1; fill it in" in result.stderr
    assert "has no finished score" in run("repair", "credit", "--score", "x", "--sensitive", "sex").stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gap.csv", "vendor.csv"]


def test_a_repair_says_what_it_cannot_do(repaired, run, tmp_path):
    vendor(1, 50).to_csv(tmp_path / "new.csv", index=False)
    model = repaired / "blind" / "model.skops"
    for command, words in {
        ("score", model, "new.csv", "--reasons", "2", "--out", "o.csv"): "--reasons needs a model of evenout fit",
        (
            "explain",
            model,
            "new.csv",
            "--person",
            "2",
        ): "is a BlindRepair; evenout explain needs a model of evenout fit",
    }.items():
        result = run(*command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr


def test_names_that_a_repair_does_not_know_are_asked_for(run, tmp_path):
    table = vendor(0, 300)
    table.to_csv(tmp_path / "new.csv", index=False)
    repair = ScoreRepair().fit(table["risk"].to_numpy(), sensitive_features=table["sex"].to_numpy())
    save_model(repair, tmp_path / "m.skops")
    score = ("score", "m.skops", "new.csv", "--out", "o.csv")
    assert "does not know its column; name it as --score" in run(*score).stderr
    assert "uses the group of each row; name its column as --sensitive" in run(*score, "--score", "risk").stderr
    result = run(*score, "--score", "risk", "--sensitive", "sex")
    assert result.exit_code == 0, result.output
    expected = repair.transform(table["risk"], sensitive_features=table["sex"])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "o.csv")["fair_score"], expected)


def test_detectors_of_others_are_loaded_when_their_types_are_trusted(run, tmp_path):
    table = vendor(0, 300)
    rows = table[["income", "debt"]]
    detectors = [IsolationForest(n_estimators=5), LocalOutlierFactor(5, novelty=True), FairLOF(5)]
    model = FairOutlierEnsemble(detectors, alpha=1.0, random_state=0).fit(rows, sensitive_features=table["sex"])
    save_model(model, tmp_path / "m.skops")
    table.to_csv(tmp_path / "new.csv", index=False)
    score = ("score", "m.skops", "new.csv", "--sensitive", "sex", "--out", "o.csv")
    refused = run(*score)
    assert (refused.exit_code, refused.stdout) == (2, "")
    needed = refused.stderr.partition("pass --trust ")[2].strip()
    assert "IsolationForest" in needed
    assert "trusted=" not in refused.stderr
    each = [word for name in needed.split(",") for word in ("--trust", name)]
    for trust in (("--trust", needed), each):
        result = run(*score, *trust)
        assert result.exit_code == 0, result.output
        found = pd.read_csv(tmp_path / "o.csv")["fair_score"]
        np.testing.assert_allclose(found, model.outlier_scores(rows, sensitive_features=table["sex"]))
    unnamed = run("score", "m.skops", "new.csv", "--out", "o.csv", *each)
    assert "uses the group of each row; name its column as --sensitive" in unnamed.stderr


@pytest.mark.parametrize("kind", [(), ("--aware",)])
def test_a_repair_that_misses_what_is_aimed_at_by_default_says_so(kind, run, tmp_path):
    rng = np.random.default_rng(2 if kind else 0)
    n = 80 if kind else 800
    sex = rng.choice(["f", "m"], n)
    income = 0.5 * (sex == "f") + rng.normal(size=n) if not kind else np.zeros(n)
    debt = rng.normal(size=n)
    risk = debt + 0.6 * (sex == "f") if kind else 0.3 * income + 0.6 * (sex == "f") + rng.normal(size=n)
    pd.DataFrame({"sex": sex, "income": income, "debt": debt, "risk": risk}).to_csv(tmp_path / "v.csv", index=False)
    printed = " ".join(run("repair", "v.csv", "--score", "risk", "--sensitive", "sex", *kind).stdout.split())
    gone = re.search(r"(\d+)% of the gap", printed)
    assert gone is not None
    assert 0 < int(gone[1]) < 80
    assert "less than the 80% aimed at." in printed
