"""Tables as strangers have them: each ends in a good fit, or in one line that says what, where and what to do."""

import json

import numpy as np
import pandas as pd
import pytest

N = 300
FIT = ("--sensitive", "sex", "--alpha", "2")


def people(**columns) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], N)
    spread = np.where(sex == "f", 3.0, 1.0)
    frame = pd.DataFrame({"sex": sex, "income": (spread * rng.normal(size=N)).round(2), "debt": rng.normal(size=N)})
    return frame.assign(**columns)


def semicolons():
    return people().to_csv(index=False, sep=";", decimal=",").encode()


def accents():
    return people(home=["Köln", "Zürich", "Genève"] * 100).to_csv(index=False).encode("latin-1")


def marked():
    return people().to_csv(index=False).encode("utf-8-sig")


def dates():
    days = pd.Timestamp("2021-03-01") + pd.to_timedelta(np.arange(N) * 7 % 500, unit="D")
    return people(joined=days.strftime("%d.%m.%Y"), seen=days.strftime("%Y-%m-%d %H:%M")).to_csv(index=False).encode()


def identifiers():
    names = {"customer_id": np.arange(N) * 7919 % 100003, "name": [f"Person {i}" for i in range(N)]}
    return people(**names).to_csv(index=True).encode()


def constants():
    return people(country="DE", year=2024, notes="", fax="?").to_csv(index=False).encode()


def towns():
    towns = [f"town {i}" for i in np.random.default_rng(1).geometric(0.02, N)]
    return people(town=towns).to_csv(index=False).encode()


def twice():
    return people().rename(columns={"debt": "income"}).to_csv(index=False).encode()


def written():
    rng = np.random.default_rng(2)
    return people(
        paid=[f"${value:,.2f}" for value in 3000 * rng.random(N)],
        rate=[f"{value}%" for value in rng.integers(0, 100, N)],
        weight=[f"{value} kg" for value in rng.integers(40, 99, N)],
        smoker=rng.choice(["yes", "no"], N),
        age=np.where(rng.random(N) < 0.05, "?", rng.integers(18, 90, N).astype(str)),
    ).to_csv(index=False).encode()  # fmt: skip


# content; beginnings of the lines about columns; notes on the error stream
GOOD = {
    "semicolons.csv": (semicolons, [], []),
    "accents.csv": (
        accents,
        [],
        ["Note: accents.csv is not UTF-8 (line 2), so it is read as Windows-1252; look at words"],
    ),
    "marked.csv": (marked, [], []),
    "dates.csv": (
        dates,
        [
            "Column 'joined': dates written as DD.MM.YYYY, as days since 2021-03-01, month, weekday",
            "Column 'seen': dates, as days since 2021-03-01, month, weekday",
        ],
        [],
    ),
    "identifiers.csv": (
        identifiers,
        [
            "Column 'Unnamed: 0': left out, an identifier by its name, different in every row",
            "Column 'customer_id': left out, an identifier by its name, different in every row",
            "Column 'name': left out, text that tells rows apart, different in every row",
        ],
        [],
    ),
    "constants.csv": (
        constants,
        [
            "Column 'country': left out, the same value in all rows",
            "Column 'year': left out, the same value in all rows",
            "Column 'notes': left out, no value in any row",
            "Column 'fax': left out, no value in any row",
        ],
        [],
    ),
    "towns.csv": (towns, ["Column 'town': 1"], []),
    "twice.csv": (
        twice,
        [],
        ["Note: twice.csv has more than one column 'income'; from here on the later ones are called 'income (2)'"],
    ),
    "written.csv": (
        written,
        [
            "Column 'paid': numbers written as text, in $",
            "Column 'rate': numbers written as text, in %",
            "Column 'weight': numbers written as text, in kg",
            "Column 'smoker': yes and no, as 1 and 0",
            "Column 'age': 1",
        ],
        [],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_stranger_s_table_is_fitted_and_told_of(name, run, tmp_path):
    content, columns, notes = GOOD[name]
    (tmp_path / name).write_bytes(content())
    result = run("fit", name, *FIT)
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert said.count("Column ") == len(columns)
    for words in columns:
        assert words in said
    assert len(result.stderr.splitlines()) == len(notes)
    for line, words in zip(result.stderr.splitlines(), notes, strict=True):
        assert line.startswith(words)
    summary = json.loads((tmp_path / "evenout-out" / "summary.json").read_text())
    assert all(f"Column {column!r}: {note}" in said for column, note in summary["column_notes"].items())
    assert {*summary["columns"]["features"]} >= {"income"}
    quiet = run("fit", name, *FIT, "--quiet", "--out", "quiet")
    assert (quiet.exit_code, quiet.stdout) == (0, "")
    scored = run("score", "evenout-out/model.skops", name, "--out", "s.csv", "--quiet")
    assert (scored.exit_code, scored.stdout) == (0, "")
    old, new = pd.read_csv("evenout-out/scores.csv")["fair_score"], pd.read_csv("s.csv")["fair_score"]
    assert np.corrcoef(old, new)[0, 1] > 0.8  # scores of new rows, which here are the training rows


SLIP = people(age=[*map(str, range(N - 1)), "4o"])
UNITS = people(weight=[f"{i} {'kg' if i % 2 else 'g'}" for i in range(N)])
BAD = {
    "empty.csv": (b"", (), "empty.csv is empty"),
    "header.csv": (b"sex,income\n", (), "header.csv has a header, but no rows"),
    "row.csv": (
        b"sex,income\nf,1\n",
        (),
        "row.csv has one row; outliers are found by holding many rows against each other",
    ),
    "one-group.csv": (people(sex="f").to_csv(index=False).encode(), (), "--sensitive has one group only ('f')"),
    "label.csv": (
        people(fraud="maybe").to_csv(index=False).encode(),
        ("--label", "fraud"),
        "column 'fraud' (--label) is 'maybe' in row 1",
    ),
    "slip.csv": (
        SLIP.to_csv(index=False).encode(),
        (),
        "column 'age' is mostly numbers, but has '4o' in row 300 (1 row with text); correct it, leave it empty",
    ),
    "units.csv": (
        UNITS.to_csv(index=False).encode(),
        (),
        "column 'weight' has numbers in different units ('g', 'kg'); write all of them in one, or leave it out",
    ),
    "twice-sex.csv": (
        b"sex,sex,x\nf,m,1\nm,f,2\n",
        (),
        "twice-sex.csv has more than one column 'sex'; rename all but one",
    ),
    "nothing.csv": (
        b"sex,id\nf,1\nm,2\n",
        (),
        "no column is left to serve as a feature: 'id' is left out, an identifier",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_table_that_cannot_be_used_ends_in_one_line_and_writes_nothing(name, run, tmp_path):
    content, options, words = BAD[name]
    (tmp_path / name).write_bytes(content)
    result = run("fit", name, *FIT, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    errors = result.stderr.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    assert words in errors[0]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_label_among_the_features_and_kept_columns(run):
    frame = people(number=np.arange(N), fraud=(np.arange(N) % 10 == 0).astype(int))
    frame.to_csv("p.csv", index=False)
    summary = json.loads(run("fit", "p.csv", *FIT, "--label", "fraud", "--keep", "number", "--json").stdout)
    assert summary["columns"]["features"] == ["income", "debt", "number"]
    assert summary["column_notes"] == {}
    noted = run("fit", "p.csv", *FIT, "--quiet")
    line = (
        "Note: column 'fraud' looks like an outcome and is used as a feature; name it as --label, or leave it out: "
        "--drop fraud"
    )
    assert (noted.exit_code, noted.output) == (0, f"{line}\n")
    refused = run("fit", "p.csv", *FIT, "--keep", "nummer")
    assert "no column 'nummer' (--keep); did you mean 'number'?" in refused.stderr


@pytest.mark.parametrize("kind", ["csv", "folder"])
def test_features_are_listed_and_those_that_are_likely_none_are_named(kind, run, tmp_path):
    rng = np.random.default_rng(3)
    numbers = rng.choice(np.arange(3, 99_999), N, replace=False)
    doubtful = {
        "two-year-recid": rng.integers(0, 2, N), "is_fraud": rng.integers(0, 2, N),
        "decile-score": rng.integers(1, 11, N), "riskRating": rng.random(N),
        "MemberID_t": numbers, "nummer": 700_000 + numbers, "paid": 10 * numbers,
    }  # fmt: skip
    frame = people(**doubtful)
    if kind == "csv":
        frame.to_csv("p.csv", index=False)
        result = run("fit", "p.csv", *FIT)
    else:
        (tmp_path / "p").mkdir()
        frame.to_parquet("p/a.parquet", index=False)
        result = run("fit", "p", *FIT)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines() == [
        "Note: columns 'two-year-recid', 'is_fraud' look like an outcome and are used as features; leave them out: "
        "--drop two-year-recid,is_fraud",
        "Note: columns 'decile-score', 'riskRating' look like the score of another model and are used as features; "
        "leave them out: --drop decile-score,riskRating",
        "Note: columns 'MemberID_t', 'nummer' look like a person number and are used as features; leave them out: "
        "--drop MemberID_t,nummer",
    ]
    printed = " ".join(result.stdout.split())
    assert f"Features: income, debt, {', '.join(doubtful)}." in printed
    drop = ("--drop", "two-year-recid,is_fraud,decile-score,riskRating,MemberID_t,nummer")
    quiet = run("fit", "p.csv" if kind == "csv" else "p", *FIT, *drop, "--out", "again")
    assert quiet.stderr == ""
    assert "Features: income, debt, paid." in quiet.stdout


@pytest.mark.parametrize("kind", ["csv", "folder"])
def test_features_that_tell_the_group_are_named(kind, run, tmp_path):
    frame = people()
    married = np.arange(N) % 5 < 3
    titles = np.where(married, np.where(frame["sex"] == "m", "Husband", "Wife"), "single")
    frame = frame.assign(relationship=titles)
    (tmp_path / "folder").mkdir()
    frame.to_parquet("folder/a.parquet", index=False)
    frame.to_csv("csv.csv", index=False)
    result = run("fit", "csv.csv" if kind == "csv" else "folder", *FIT, "--json")
    told = json.loads(result.stdout)["gives_group_away"]
    assert {*told} == {"relationship=Husband", "relationship=Wife"}
    assert "Note: features nearly give the group away: 'relationship=" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_whole_ages_are_fitted_quickly_and_the_way_to_compare_along_them_is_said(run):
    rng = np.random.default_rng(0)
    n = 1500
    sex, age = rng.integers(1, 3, n), rng.integers(21, 50, n)
    table = pd.DataFrame({"SEX": sex, "AGE": age, "x": rng.normal(size=n) + 0.05 * age, "y": rng.normal(size=n) * sex})
    table.to_csv("p.csv", index=False)
    result = run("fit", "p.csv", "--sensitive", "SEX", "--sensitive", "AGE", "--flag-rate-ratio", "0.9")
    assert result.exit_code == 0
    said = " ".join(result.stderr.split())
    assert "more than 20 whole numbers in column 'AGE', and each is a group of its own; set --continuous AGE" in said
    assert "Flagged in training: SEX=1, AGE=" in result.stdout


def test_audits_and_folders_say_how_to_compare_along_whole_ages(run, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"AGE": rng.integers(21, 50, 1500), "x": rng.normal(size=1500), "y": rng.normal(size=1500)})
    table.to_csv("p.csv", index=False)
    (tmp_path / "folder").mkdir()
    table.to_parquet("folder/a.parquet", index=False)
    line = "has more than 20 whole numbers in column 'AGE', and each is a group of its own; set --continuous AGE to "
    audited = run("audit", "p.csv", "--score", "x", "--sensitive", "AGE")
    fitted = run("fit", "folder", "--sensitive", "AGE", "--out", "out")
    for result in (audited, fitted):
        assert result.exit_code == 0
        assert " ".join(result.stderr.split()).count(f"--sensitive {line}compare along the number") == 1
    assert "or give the column as text if each number is meant as a group" in fitted.stderr  # a CSV file is text
    along = run("audit", "p.csv", "--score", "x", "--sensitive", "AGE", "--continuous", "AGE")
    assert "whole numbers" not in along.stderr


def test_the_terminal_says_first_that_detection_is_no_better_than_chance(run):
    """Labels by which the least conspicuous rows are the outliers: no score that looks for others finds them."""
    table = people()
    table.assign(out=(table["income"].abs() < 0.5).astype(int)).to_csv("p.csv", index=False)
    result = run("fit", "p.csv", *FIT, "--label", "out")
    lines = result.stdout.splitlines()
    verdict = next(place for place, line in enumerate(lines) if "no better than chance" in line)
    assert lines[verdict].startswith("AUC ")
    assert verdict < next(place for place, line in enumerate(lines) if line.startswith("In training, "))
