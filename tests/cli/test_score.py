"""`evenout score`: new rows from the file alone, as Python would score them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.datasets import load_dataset
from evenout.persistence import load_model, save_model
from evenout.tables.files import read_table, sha256


@pytest.mark.filterwarnings(
    "ignore::evenout.exceptions.SmallGroupWarning", "ignore::evenout.exceptions.TargetNotReachedWarning"
)
def test_one_half_of_german_fits_and_the_other_is_scored_from_the_file_alone(run):
    data = load_dataset("german")
    order = np.random.default_rng(0).permutation(1000)
    first, second = order[:500], order[500:]
    data.X.assign(group=data.sensitive, bad=data.y).iloc[first].to_csv("first.csv", index=False)
    data.X.iloc[second].to_csv("second.csv", index=False)
    assert run("fit", "first.csv", "--sensitive", "group", "--label", "bad", "--out", "fair").exit_code == 0
    result = run("score", "fair/model.skops", "second.csv", "--out", "scores.csv")
    assert result.exit_code == 0, result.stderr

    model = FairOutlierEnsemble(random_state=0).fit(data.X.iloc[first], sensitive_features=data.sensitive.iloc[first])
    scores = pd.read_csv("scores.csv")
    expected = model.outlier_scores(data.X.iloc[second])
    np.testing.assert_allclose(scores["fair_score"], expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(scores["flagged"], model.predict(data.X.iloc[second]) == -1)
    loaded = load_model("fair/model.skops")
    np.testing.assert_array_equal(loaded["ensemble"].outlier_scores(data.X.iloc[second]), expected)
    assert loaded["ensemble"].alpha_ == model.alpha_


def test_training_rows_score_as_in_fitting_whatever_else_the_file_holds(fitted, people, run):
    people[people.columns[::-1]].assign(more="text").to_parquet("p.parquet")
    assert run("score", fitted / "model.skops", "p.parquet", "--id", "person", "--out", "s.csv").exit_code == 0
    training, scores = pd.read_csv(fitted / "scores.csv"), pd.read_csv("s.csv")
    assert list(scores) == ["id", "fair_score", "flagged"]
    pd.testing.assert_frame_equal(scores, training[["id", "fair_score", "flagged"]])


def test_text_is_read_as_in_fitting_though_it_looks_like_numbers(people, new_people, run):
    codes = people.assign(home=np.where(people["debt"] > 0, "1", "none"))
    codes.to_csv("p.csv", index=False)
    assert run("fit", "p.csv", "--sensitive", "sex", "--drop", "person,fraud,age", "--alpha", "1").exit_code == 0
    new_people.assign(home="1")[["home", "income", "debt"]].to_csv("n.csv", index=False)
    result = run("score", "evenout-out/model.skops", "n.csv", "--out", "s.csv", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["unknown_values"] == {}


def test_new_categories_are_scored_and_counted(fitted, new_people, run):
    new_people.assign(home=["boat"] * 3 + ["own"] * 37).to_csv("n.csv", index=False)
    result = run("score", fitted / "model.skops", "n.csv", "--out", "s.csv", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("Note: column 'home': 3 of 40 rows have text that the training table did not have")
    assert result.stderr.count("\n") == 1
    summary = json.loads(result.stdout)
    assert summary["unknown_values"] == {"home": 3}
    assert summary["model"]["sha256"] == sha256(fitted / "model.skops")
    scores = pd.read_csv("s.csv")
    assert (summary["rows"], summary["flagged"]) == (40, scores["flagged"].sum())
    np.testing.assert_array_equal(scores["fair_score"] > summary["threshold"], scores["flagged"])


def test_result_is_one_line_or_nothing(fitted, new_people, run):
    new_people.to_csv("n.csv", index=False)
    arguments = ("score", fitted / "model.skops", "n.csv", "--out", "s.csv")
    assert run(*arguments).stdout.endswith("): s.csv\n")
    assert run(*arguments, "--quiet").output == ""


def test_models_saved_in_python_are_scored_by_column_name(run):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["u", "v"])
    model = FairOutlierEnsemble(alpha=1.0, random_state=0).fit(X, sensitive_features=["p", "q"] * 30)
    save_model(model, "m.skops")
    (X + 0.1)[["v", "u"]].to_csv("n.csv", index=False)
    assert run("score", "m.skops", "n.csv", "--out", "s.csv", "--quiet").exit_code == 0
    np.testing.assert_array_equal(read_table(Path("s.csv"))["fair_score"], model.outlier_scores(X + 0.1))
    save_model(FairOutlierEnsemble(alpha=1.0).fit(X.to_numpy(), sensitive_features=["p", "q"] * 30), "m.skops")
    assert "knows no column names" in run("score", "m.skops", "n.csv", "--out", "s.csv").stderr


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("s.txt", "--out s.txt must end in .csv"),
        ("n.csv", "would replace the file that it is computed from"),
        ("folder.csv", "folder.csv is a folder"),
    ],
)
def test_out_must_be_another_csv_file(out, words, fitted, new_people, run, tmp_path):
    new_people.to_csv("n.csv", index=False)
    before = (tmp_path / "n.csv").read_bytes()
    (tmp_path / "folder.csv").mkdir()
    result = run("score", fitted / "model.skops", "n.csv", "--out", out)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr
    assert (tmp_path / "n.csv").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.csv", "n.csv"]
