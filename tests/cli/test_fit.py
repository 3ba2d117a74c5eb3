"""`evenout fit`: what it writes agrees with Python, and what it prints fits a terminal."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from evenout import FairOutlierEnsemble, Groups
from evenout.metrics import flag_rate_ratio, flag_rates
from evenout.persistence import load_model
from evenout.storage.output import finite
from evenout.tables.encoder import TableEncoder
from evenout.tables.files import read_table, sha256

FAST = ("--alpha", "2", "--quiet")


@pytest.fixture(scope="module")
def model(people):
    rows = TableEncoder().set_output(transform="pandas").fit_transform(people[["home", "income", "debt"]])
    ensemble = FairOutlierEnsemble(alpha=2.0, random_state=0)
    return ensemble.fit(rows, sensitive_features=people[["sex", "age"]])


def test_scores_agree_with_python(fitted, model, people):
    scores = read_table(fitted / "scores.csv")
    assert list(scores) == ["id", "group", "base_score", "fair_score", "base_rank", "fair_rank", "flagged"]
    assert scores["id"].tolist() == people["person"].tolist()
    assert scores["group"].tolist() == ("sex=" + people["sex"] + ", age=" + people["age"]).tolist()
    np.testing.assert_array_equal(scores["base_score"], model.target_)
    np.testing.assert_array_equal(scores["fair_score"], model.outlier_scores_)
    np.testing.assert_array_equal(scores["flagged"], model.outlier_scores_ > -model.offset_)
    best = scores.loc[scores["fair_rank"] == 1, "fair_score"]
    assert best.item() == model.outlier_scores_.max()


def test_summary_agrees_with_python(fitted, model, people):
    summary = json.loads((fitted / "summary.json").read_text())
    groups, path = people[["sex", "age"]], model.path_
    assert summary["input"] == {
        "name": "people.csv",
        "sha256": sha256(fitted.parent / "people.csv"),
        "rows": 360,
        "reference_rows": 360,
    }
    assert summary["model"] == {"file": "model.skops", "sha256": sha256(fitted / "model.skops")}
    assert summary["settings"] == json.loads(
        json.dumps(model.get_params() | {"n_jobs": -1, "groups": Groups().get_params()})
    )
    assert summary["columns"] == {
        "features": ["home", "income", "debt"],
        "sensitive": ["sex", "age"],
        "given": [],
        "clusters": [],
    }
    assert summary["weights"] == dict(zip(model.detector_names_, model.weights_.tolist(), strict=True))
    assert sum(summary["groups"].values()) == 360
    assert len(summary["groups"]) == 6
    assert summary["bias_unseen"] == {
        "before": path.target_bias(),
        "after": path.bias(2.0).item(),
        "before_error": path.target_standard_error(),
        "after_error": path.standard_error(2.0).item(),
    }
    assert summary["bias_unseen_interval"] == {
        "before": [*path.target_interval()],
        "after": [float(end) for end in path.interval(2.0)],
    }
    assert summary["bias_reduction"] == model.bias_reduction_
    assert summary["bias_reduction_interval"] == [
        end if np.isfinite(end) else None for end in model.bias_reduction_interval_
    ]
    assert summary["outcome"] == finite(model.outcome_.to_dict() | {"interval": [*model.outcome_.interval]})
    assert summary["unseen_estimate"] == "everything refitted"
    assert summary["correlation"] == path.correlation(2.0)
    after = flag_rates(model.outlier_scores_, sensitive_features=groups)
    assert {group: rate["after"] for group, rate in summary["flag_rates"].items()} == after
    assert summary["flag_rate_ratio"]["before"] == flag_rate_ratio(model.target_, sensitive_features=groups)
    before = 1.0 - np.array([*flag_rates(model.target_, sensitive_features=groups).values()])
    assert summary["unflagged_rate_ratio"]["before"] == pytest.approx(before.min() / before.max())
    assert summary["auc"]["after"] == pytest.approx(roc_auc_score(people["fraud"], model.outlier_scores_))
    assert summary["average_precision"]["before"] == average_precision_score(people["fraud"], model.target_)


def test_size_of_the_gap_is_told_in_deviations_and_in_people(fitted, model, people):
    summary = json.loads((fitted / "summary.json").read_text())
    base = pd.Series(model.target_).groupby((people["sex"] + people["age"]).to_numpy())
    assert summary["gap_in_standard_deviations"] == pytest.approx(np.ptp(base.mean()) / model.target_.std())
    flagged = pd.Series(model.target_ > np.percentile(model.target_, 90))
    counts = flagged.groupby((people["sex"] + people["age"]).to_numpy()).agg(["sum", "size"])
    beyond = (counts["sum"] - counts["size"] * flagged.mean()).clip(lower=0).sum()
    assert summary["flagged_beyond_equal_rates"]["before"] == pytest.approx(beyond)
    assert summary["flagged_in_groups"]["before"] == flagged.sum() == 36


def test_label_id_and_protected_columns_never_change_the_scores(fitted, people, run):
    shuffled = people.assign(fraud=people["fraud"].to_numpy()[::-1], person=range(360), notes=[*"ab"] * 180)
    shuffled.to_parquet("p.parquet")
    assert run("fit", "p.parquet", "--sensitive", "sex,age", "--drop", "person,notes,fraud", *FAST).exit_code == 0
    mine, other = pd.read_csv(fitted / "scores.csv"), pd.read_csv("evenout-out/scores.csv")
    assert other["id"].tolist() == list(range(1, 361))
    pd.testing.assert_frame_equal(mine.drop(columns="id"), other.drop(columns="id"))


def test_options_reach_every_argument_of_the_ensemble(people, run):
    people.to_csv("p.csv.gz", index=False)
    settings = {
        "detectors": "diverse",
        "standardize": True,
        "combination": "average",
        "scaling": "zscore",
        "fairness": {"demographic_parity": 1.0, "individual": 2.0},
        "bias_reduction": 0.1,
        "confidence": 0.9,
        "judged_on": "unseen",
        "weighting": "uniform",
        "correction": "nonnegative",
        "contamination": 20,
        "reference_size": 500,
        "random_state": 7,
        "n_jobs": 1,
    }
    rules = {"continuous": [], "cross": True, "min_size": 20, "small": "merge", "unknown": "ignore"}
    similar = {"length_scale": "median:0.5", "pairs": "sampled"}
    words = {"fairness": "demographic_parity,individual=2", "continuous": "", "cross": "yes"}
    options = []
    for name, value in (settings | rules | similar).items():
        option = "--" + name.replace("random_state", "seed").replace("_", "-")
        options += [option] if value is True and name not in words else [option, words.get(name, value)]
    result = run("fit", "p.csv.gz", "--sensitive", "sex", "--drop", "person", *options, "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    settings["groups"] = rules | {"bands": 5}
    settings["fairness"] = {
        "demographic_parity": 1.0,
        "Individual(length_scale=('median', 0.5), pairs='sampled')": 2.0,
    }
    others = {"alpha", "flag_rate_ratio", "learn"}  # learning in test_learn.py
    assert set(summary["settings"]) - {"device"} == set(settings) | others
    assert {name: summary["settings"][name] for name in settings} == settings
    assert json.loads(Path("evenout-out/summary.json").read_text()) == summary
    assert not set(FairOutlierEnsemble().get_params()) - {"device"} - set(settings) - others


@pytest.mark.parametrize(("text", "value"), [("minmax", "minmax"), ("3.5", 3.5), ("median:2", ["median", 2.0])])
def test_length_scale_is_read(text, value, people, run):
    people.to_csv("p.csv", index=False)
    options = ("--sensitive", "sex", "--drop", "person,fraud,home", "--fairness", "individual")
    result = run("fit", "p.csv", *options, "--length-scale", text, "--alpha", "1", "--json")
    assert json.loads(result.stdout)["settings"]["fairness"] == {"length_scale": value, "pairs": "auto"}


def test_a_flag_rate_ratio_can_be_asked_for(people, run):
    people.to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--drop", "person", "--flag-rate-ratio", "0.1", "--json")
    assert json.loads(result.stdout)["settings"]["flag_rate_ratio"] == 0.1


def test_precomputed_scores_must_be_numbers(people, run):
    people[["sex", "income", "debt", "home"]].fillna({"income": 0}).to_csv("p.csv", index=False)
    options = ("--sensitive", "sex", "--detectors", "precomputed", *FAST)
    result = run("fit", "p.csv", *options)
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: column 'home' holds text; scores must be numbers\n",
    )
    assert run("fit", "p.csv", *options, "--drop", "home").exit_code == 0
    assert load_model("evenout-out/model.skops")["ensemble"].detector_names_ == ("score_0", "score_1")


def test_groups_of_rows_are_kept_if_asked_for(people, run):
    people[["sex", "income", "debt"]].fillna({"income": 0}).to_csv("p.csv", index=False)
    for more in ((), ("--updatable",)):
        assert run("fit", "p.csv", "--sensitive", "sex", "--detectors", "precomputed", *FAST, *more).exit_code == 0
        codes = load_model("evenout-out/model.skops")["ensemble"]._result.groups.codes
        assert len(codes) == (len(people) if more else 0)


def test_report_is_given_rows_groups_labels_ids_and_hashes(people, run, monkeypatch):
    told = {}
    monkeypatch.setattr(
        "evenout.report.write_report", lambda model, path, **parts: told.update(parts, path=path, model=model)
    )
    people.to_csv("p.csv", index=False)
    options = (
        "--sensitive",
        "sex",
        "--id",
        "person",
        "--label",
        "fraud",
        "--show-small-cells",
        "--json",
        "--alpha",
        "2",
    )
    summary = json.loads(run("fit", "p.csv", *options).stdout)
    np.testing.assert_array_equal(told["model"].outlier_scores(told["X"]), told["model"].outlier_scores_)
    assert told["sensitive_features"]["sex"].tolist() == people["sex"].tolist()
    assert told["labels"].tolist() == people["fraud"].tolist()
    assert told["ids"].tolist() == people["person"].tolist()
    assert (told["input_sha256"], told["model_sha256"]) == (
        summary["input"]["sha256"],
        summary["model"]["sha256"],
    )
    assert told["show_small_cells"] is True
    assert told["path"].name == "report.html"


def test_bundled_data_needs_no_option(run):
    result = run("fit", "breastw")
    assert result.exit_code == 0
    assert result.stdout.startswith("breastw: 683 rows, 3 groups by group\n")
    assert len(pd.read_csv("evenout-out/scores.csv")) == 683


def test_bundled_data_has_roles_of_its_own(run):
    for option in ("--label", "--id", "--clusters"):
        assert "leave --label, --id and --clusters out" in run("fit", "pima", option, "x").stderr
    assert "only 'credit' has a choice" in run("fit", "pima", "--sensitive", "age").stderr
    assert "choose from education, age, sex, marriage" in run("fit", "credit", "--sensitive", "agee").stderr


def test_clusters_are_never_a_feature_and_widen_the_interval(people, run):
    twice = pd.concat([people, people], ignore_index=True)
    twice.to_csv("p.csv", index=False)
    options = ("fit", "p.csv", "--sensitive", "sex", "--label", "fraud", "--alpha", "2", "--json")
    with_clusters = json.loads(run(*options, "--clusters", "person").stdout)
    without = json.loads(run(*options, "--drop", "person").stdout)
    assert with_clusters["columns"]["features"] == without["columns"]["features"]
    assert with_clusters["columns"]["clusters"] == ["person"]
    errors = [summary["bias_unseen"]["before_error"] for summary in (with_clusters, without)]
    assert errors[0] > 1.2 * errors[1]
    twice.assign(person=twice["person"].where(twice.index != 7)).to_csv("p.csv", index=False)
    refused = run(*options, "--clusters", "person")
    assert refused.exit_code == 2
    assert "Error: --clusters has missing values in 1 of 720 rows (first: row 8)" in refused.stderr


def test_small_groups_are_shown_apart(people, run):
    people.assign(sex=people["sex"].mask(people.index < 12, "z")).to_csv("p.csv", index=False)
    options = ("fit", "p.csv", "--sensitive", "sex", "--drop", "person", "--alpha", "2")
    result = run(*options)
    assert "Note: groups of fewer than 30 rows are left out: 'z' (12)" in result.stderr
    assert "p.csv: 360 rows, 3 groups by sex" in result.stdout
    assert "Flagged: z" not in result.stdout
    assert "\nToo few rows to compare: z (12).\n" in result.stdout
    assert (pd.read_csv("evenout-out/scores.csv")["group"] == "z").sum() == 12
    summary = json.loads(Path("evenout-out/summary.json").read_text())
    assert summary["left_out_groups"] == {"z": 12}
    assert set(summary["groups"]) == {"f", "m", "x"}


def test_fewer_than_two_groups_claim_nothing(people, run):
    people.assign(sex=["z"] * 20 + ["f"] * 340).to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--drop", "person")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("p.csv: 360 rows, 1 group by sex\n")
    assert "Fewer than two groups have enough rows to be compared: the scores are the" in result.stdout
    assert re.search(r"^Group bias, unseen rows +– +–$", result.stdout, re.MULTILINE)
    summary = json.loads(Path("evenout-out/summary.json").read_text())
    assert summary["bias_reduction_interval"] == [None, None]
    assert summary["flag_rate_ratio"]["before"] is None
    assert summary["gap_in_standard_deviations"] is None


def test_a_count_of_rows_to_flag_can_be_given(people, run):
    people.to_csv("p.csv", index=False)
    options = ("--sensitive", "sex", "--drop", "person", *FAST)
    assert run("fit", "p.csv", *options, "--contamination", "25").exit_code == 0
    assert pd.read_csv("evenout-out/scores.csv")["flagged"].sum() == 25
    refused = run("fit", "p.csv", *options, "--contamination", "200")
    assert "--contamination 200 is more than half of the 360 rows" in refused.stderr
    assert "0.7 is neither a share above 0" in run("fit", "p.csv", "--contamination", "0.7").stderr


def test_the_table_fits_eighty_columns_and_shows_figures_errors_and_price(people, run):
    names = {
        "f": "a group with a very long name that no terminal has room for",
        "m": "[red]m[/red]",
        "x": "x\x1b[2J",
    }
    people.assign(sex=people["sex"].map(names)).to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--id", "person", "--label", "fraud", "--alpha", "2")
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "p.csv: 360 rows, 3 groups by sex"
    ends = r"\d\.\d\d \(\d\.\d\d–\d\.\d\d\)"
    assert lines[1].split() == ["(95%", "interval)", "before", "after"]
    assert re.match(rf"Group bias, unseen rows +{ends} +{ends}$", lines[2])
    assert re.match(rf"Lowest / highest flag rate, unseen rows +\d\.\d\d +{ends}$", lines[3])
    assert lines[4].startswith("Flagged in training: [red]m[/red] ")
    assert re.match(r"Flagged in training: a group with .*… +\d+\.\d% +\d+\.\d%$", lines[5])
    assert lines[6].startswith("Flagged in training: x\N{REPLACEMENT CHARACTER}[2J ")
    assert re.match(r"AUC +\d\.\d\d +\d\.\d\d$", lines[7])
    text = " ".join(result.stdout.split())
    assert re.search(r"In training, \d+ of 36 flagged people were beyond equal rates; now \d+\.", text)
    assert re.search(
        r"\d+% of the gap between groups is gone on unseen rows \(95% interval -?\d+% to \d+%\), at the alpha that "
        r"was given\.",
        text,
    )
    assert re.search(
        r"Price: \d+ of 36 flagged people replaced, correlation with the base score [01]\.\d\d, "
        r"AUC [+-]\d\.\d\d\.",
        text,
    )
    assert "fifth" not in text
    assert lines[-1] == "Written to evenout-out: scores.csv, model.skops, summary.json, report.html"


@pytest.mark.parametrize("data", ["breastw", pytest.param("credit", marks=pytest.mark.long)])
def test_the_first_command_ends_in_twenty_lines_and_misses_nothing(data, run):
    result = run("fit", data)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) <= 20
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "asked for" not in result.stdout + result.stderr
    for said in ("Group bias, unseen rows", "Price: ", "Try next: ", "Written to evenout-out: "):
        assert said in result.stdout
    assert re.search(r"\d\.\d{3}", result.stdout) is None


def test_many_groups_are_cut_short_on_the_terminal_alone(run):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": np.arange(120) % 15, "x": rng.normal(size=120), "y": rng.normal(size=120)})
    frame.to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "g", "--alpha", "1", "--min-size", "5")
    assert result.stdout.count("Flagged in training: ") == 12
    assert "... 3 smaller groups: summary.json" in result.stdout
    assert len(json.loads(Path("evenout-out/summary.json").read_text())["groups"]) == 15


def test_warnings_of_the_library_are_notes_on_the_error_stream(people, run):
    people.assign(sex=[*"ab"] * 180).to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--drop", "person,fraud", "--json")
    notes = result.stderr.splitlines()
    assert any(note.startswith("Note: no group gap was found in the base score") for note in notes)
    assert all(note.startswith("Note: ") for note in notes)
    summary = json.loads(result.stdout)
    assert (summary["alpha"], summary["gap_detected"]) == (0.0, False)


def test_repeated_ids_are_noted(people, run):
    people.assign(person="same").to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "sex", "--id", "person", *FAST)
    assert "Note: column 'person' (--id) does not tell rows apart: 359 of 360 repeat an earlier id" in result.stderr


def test_unknown_groups_are_left_blank(people, run):
    people.assign(sex=people["sex"].where(people.index > 3)).to_csv("p.csv", index=False)
    options = ("fit", "p.csv", "--sensitive", "sex", "--drop", "person", *FAST)
    result = run(*options)
    assert result.exit_code == 2
    assert "--sensitive has missing values in 4 of 360 rows" in result.stderr
    assert "set --unknown ignore" in result.stderr
    assert run(*options, "--unknown", "ignore").exit_code == 0
    assert pd.read_csv("evenout-out/scores.csv")["group"].isna().sum() == 4
