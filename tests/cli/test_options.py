"""Options that take columns add up when they are repeated; options that take one value must be given once."""

import json
from inspect import signature

import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, Groups, Individual
from evenout.cli.commands import fit
from evenout.cli.options import OF_GROUPS, split_names
from evenout.core.base_score import COMBINATIONS, SCALINGS
from evenout.core.pairwise import METHODS
from evenout.core.registry import NOTIONS
from evenout.detectors.pool import POOLS
from evenout.fitting.settings import CORRECTIONS

FAST = ("--alpha", "2", "--quiet")


def columns(tmp_path):
    return json.loads((tmp_path / "evenout-out" / "summary.json").read_text())["columns"]


def test_repeated_columns_add_up(run, people, tmp_path):
    people.to_csv(tmp_path / "people.csv", index=False)
    given = ("--sensitive", "sex", "--sensitive", "age", "--drop", "person", "--drop", "fraud, home")
    result = run("fit", "people.csv", *given, *FAST)
    assert result.exit_code == 0, result.output
    assert columns(tmp_path)["sensitive"] == ["sex", "age"]
    assert columns(tmp_path)["features"] == ["income", "debt"]


def test_repeated_columns_add_up_over_a_folder(run, people, tmp_path):
    (tmp_path / "parts").mkdir()
    people.drop(columns="home").dropna().to_parquet(tmp_path / "parts" / "a.parquet")
    given = ("--sensitive", "sex", "--sensitive", "age", "--drop", "person", "--drop", "fraud", "--json")
    result = run("fit", "parts", *given, "--alpha", "2")
    assert result.exit_code == 0, result.output
    assert "sex=f, age=old" in json.loads(result.stdout)["groups"]


def test_an_audit_reads_lists_alike(run, people, tmp_path):
    people.assign(years=range(len(people))).to_csv(tmp_path / "people.csv", index=False)
    options = ("--score", "debt", "--resamples", "0", "--continuous", "years, nobody", "--json")
    result = run("audit", "people.csv", "--sensitive", "sex", "--sensitive", "age, years", *options)
    assert result.exit_code == 2
    assert "'nobody'" in result.stderr  # not ' nobody'


@pytest.mark.parametrize("option", ["--id", "--label", "--out", "--clusters", "--alpha"])
def test_an_option_of_one_value_is_refused_twice(option, run):
    result = run("fit", "credit", option, "1", option, "2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} is given more than once" in result.stderr


def test_names_are_split_in_one_way():
    known = ["sex", " odd", "a,b"]
    assert split_names(["sex, odd", "a,b", "sex"], known) == ["sex", " odd", "a,b"]
    assert split_names(["", " ", ","]) == []
    assert split_names(["a,b"], pd.Index(["a,b"])) == ["a,b"]


def test_words_serve_as_labels(run, people, tmp_path):
    words = people.assign(fraud=people["fraud"].map({1: "Yes", 0: "no"}))
    words.to_csv(tmp_path / "words.csv", index=False)
    people.to_csv(tmp_path / "numbers.csv", index=False)
    found = []
    for name in ("words", "numbers"):
        options = ("--sensitive", "sex", "--id", "person", "--label", "fraud", "--alpha", "2", "--json")
        found.append(json.loads(run("fit", f"{name}.csv", *options).stdout)["auc"])
    assert found[0] == found[1] != None  # noqa: E711


def test_a_protected_column_cannot_be_kept(run, people, tmp_path):
    (tmp_path / "parts").mkdir()
    people.dropna().to_parquet(tmp_path / "parts" / "a.parquet")
    for data in ("parts", "credit"):
        result = run("fit", data, "--sensitive", "sex", "--keep", "sex")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "column 'sex' is given as --sensitive and as --keep; choose one" in result.stderr


def test_defaults_and_choices_are_those_of_the_library():
    options = {option.name: option for option in fit.params}
    written = {"cross": "yes", "length_scale": "median:0.1", "random_state": 0, "n_jobs": -1}
    for takes in (FairOutlierEnsemble, Groups, Individual):
        for name, parameter in signature(takes).parameters.items():
            if name != "groups":
                assert options[name].default == written.get(name, parameter.default), name
    assert tuple(signature(Groups).parameters) == OF_GROUPS
    choices = {
        "combination": COMBINATIONS, "scaling": SCALINGS, "pairs": METHODS, "detectors": POOLS,
        "correction": CORRECTIONS,
    }  # fmt: skip
    for name, words in choices.items():
        assert tuple(options[name].type.choices) == tuple(words), name
    aims = "; ".join(f"{name}, {notion.option}" for name, notion in NOTIONS.items())
    assert f"What is made fair: {aims}. " in options["fairness"].help
