"""Every wrong file ends in one clear line, exit status 2 and nothing written; hostile text stays text."""

import csv
import gzip

import numpy as np
import pandas as pd
import pytest

from evenout.storage.archive import read_plain, write_plain

FIT = ("--sensitive", "sex", "--drop", "person")
GOOD = "sex,x,y\n" + "".join(f"{'fm'[i % 2]},{i * i % 7},{i % 5}\n" for i in range(20))

# name of the file: content, further options, words of the message
WRONG_FIT = {
    "absent.csv": (None, (), "absent.csv does not exist"),
    "empty.csv": (b"", (), "is empty"),
    "header.csv": (b"sex,x\n", (), "has a header, but no rows"),
    "binary.csv": (bytes(range(256)), (), "holds binary data"),
    "latin.csv": (
        "sex,x\nf,\xfc\n".encode() + b"m,\xe9\n",
        (),
        "line 3: byte 0xe9 is not UTF-8; save the file as UTF-8",
    ),
    "ragged.csv": (b"sex,x\nf,1\nm,2,3\n", (), "line 3: 3 fields, but the header has 2"),
    "one-row.csv": (b"sex,x\nf,1\n", (), "one-row.csv has one row; outliers are found by holding many rows"),
    "cut.csv.gz": (gzip.compress(GOOD.encode())[:-9], (), "is no gzip file, or a damaged one"),
    "fake.parquet": (GOOD.encode(), (), "is no Parquet file"),
    "table.txt": (GOOD.encode(), (), "is of no known kind"),
    "near.csv": (
        GOOD.replace("sex", "Sex").encode(),
        (),
        "no column 'sex' (--sensitive); did you mean 'Sex'?",
    ),
    "label.csv": (GOOD.encode(), ("--label", "fraud"), "no column 'fraud' (--label)"),
    "id.csv": (GOOD.encode(), ("--id", "X"), "no column 'X' (--id); did you mean 'x'?"),
    "drop.csv": (GOOD.encode(), ("--drop", "z"), "no column 'z' (--drop)"),
    "roles.csv": (GOOD.encode(), ("--label", "sex"), "'sex' is given as --sensitive and as --label"),
    "one-group.csv": (GOOD.replace("m", "f").encode(), (), "--sensitive has one group only ('f')"),
    "small.csv": (
        GOOD.encode() + b"z,1,1\n",
        ("--small", "error", "--min-size", "5"),
        "'z' (1); merge or bin values yourself, or set --small leave_out or --small merge",
    ),
    "clusters.csv": (
        GOOD.encode(),
        ("--clusters", "sex"),
        "given as --sensitive and as --clusters; choose one",
    ),
    "bands.csv": (
        GOOD.encode(),
        ("--bands", "7"),
        "--bands goes with --continuous, the protected columns that are numbers; name them, or leave --bands out",
    ),
    "no-clusters.csv": (GOOD.encode(), ("--clusters", "z"), "no column 'z' (--clusters)"),
    "sure.csv": (
        GOOD.encode(),
        ("--confidence", "0.9", "--alpha", "1"),
        "--confidence goes with --bias-reduction, but --alpha was given",
    ),
    "all-missing.csv": (b"sex,y\nf,\nm,NA\n", (), "no column is left to serve as a feature: 'y' is left out, no value"),
    "no-feature.csv": (GOOD.encode(), ("--drop", "x,y"), "no column is left to serve as a feature"),
    "words.csv": (GOOD.encode(), ("--label", "x"), "(--label) is '4' in row 3; labels must be 0, or 1"),
    "blank-label.csv": (b"sex,x,l\nf,1,0\nm,2,\n", ("--label", "l"), "(--label) is empty in row 2"),
    "other-words.csv": (
        b"sex,x,l\nf,1,ja\nm,2,nein\n",
        ("--label", "l"),
        "(--label) is 'ja' in row 1; labels must be 0, or 1 for an outlier (or no and yes)",
    ),
    "keep.csv": (GOOD.encode(), ("--keep", "sex"), "'sex' is given as --sensitive and as --keep; choose one"),
    "keep-what.csv": (GOOD.encode(), ("--keep", "Y"), "no column 'Y' (--keep); did you mean 'y'?"),
    "one-label.csv": (b"sex,x,l\nf,1,0\nm,2,0\n", ("--label", "l"), "(--label) is 0 in every row"),
    "infinite.csv": (b"sex,x\nf,1\nm,inf\n", (), "column 'x' is infinite in row 2"),
    "random-state.csv": (
        GOOD.replace("x,y", "random_state,y").encode(),
        ("--drop", "random_stat"),
        "no column 'random_stat' (--drop); did you mean 'random_state'?",
    ),
    "jobs.csv": (GOOD.encode(), ("--n-jobs", "0"), "0 is no number of threads; give 1 or more"),
    "two.csv": (
        GOOD.encode(),
        ("--alpha", "1", "--bias-reduction", "1"),
        "give at most one of --bias-reduction, --flag-rate-ratio and --alpha",
    ),
}


@pytest.mark.parametrize("name", WRONG_FIT)
def test_fit_refuses_a_wrong_file_in_one_line_and_writes_nothing(name, run, tmp_path):
    content, options, words = WRONG_FIT[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = run("fit", name, "--sensitive", "sex", *options)
    assert_refused(result, words)
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else [name])


def assert_refused(result, words):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_fit_refuses_what_is_no_file(run, tmp_path):
    assert_refused(run("fit", tmp_path, "--sensitive", "sex"), "has no Parquet file")
    assert_refused(
        run("fit", "credt"),
        "neither a file (.csv, .csv.gz, .parquet) nor a bundled data set; did you mean credit?",
    )
    (tmp_path / "a.csv").write_text(GOOD)
    assert_refused(run("fit", "a.csv"), "--sensitive is missing")
    assert_refused(run("fit", "a.csv", "--sensitive", "sex", "--out", "a.csv"), "a.csv is a file, not a folder")
    pd.DataFrame({"sex": ["f", "m"], "list": [[1], [2]]}).to_parquet("d.parquet")
    assert_refused(run("fit", "d.parquet", "--sensitive", "sex"), "'list' holds values of kind 'mixed'")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="debt"), "no column 'debt' (needed by the model)"),
        (lambda frame: frame.rename(columns={"income": "Income"}), "did you mean 'Income'?"),
        (lambda frame: frame.assign(debt="much"), "column 'debt' must hold numbers, but has 'much' in row 1"),
        (lambda frame: frame.assign(debt=np.inf), "column 'debt' is infinite in row 1"),
        (lambda frame: frame.iloc[:0], "has a header, but no rows"),
    ],
)
def test_score_refuses_rows_that_the_model_cannot_read(change, words, fitted, new_people, run, tmp_path):
    change(new_people).to_csv("n.csv", index=False)
    assert_refused(run("score", fitted / "model.skops", "n.csv", "--out", "s.csv"), words)
    assert [path.name for path in tmp_path.iterdir()] == ["n.csv"]


def test_score_refuses_wrong_models(fitted, new_people, run, tmp_path):
    new_people.to_csv("n.csv", index=False)
    content = (fitted / "model.skops").read_bytes()
    (tmp_path / "cut.skops").write_bytes(content[:-100])
    data = read_plain(fitted / "model.skops")
    data["ensemble"]["result"]["scores"]["pool"]["parts"][0]["child"][0] = 10**6
    write_plain(data, tmp_path / "crafted.skops")
    for name, words in (
        ("no.skops", "does not exist"),
        ("cut.skops", "damaged"),
        ("crafted.skops", "child leaves its tree"),
    ):
        assert_refused(run("score", name, "n.csv", "--out", "s.csv"), words)
    assert not (tmp_path / "s.csv").exists()


def test_score_refuses_an_absent_id_column(fitted, new_people, run):
    new_people.to_csv("n.csv", index=False)
    result = run("score", fitted / "model.skops", "n.csv", "--id", "persn", "--out", "s.csv")
    assert_refused(result, "no column 'persn' (--id); did you mean 'person'?")


HOSTILE = ['=HYPERLINK("http://x")', "+1+1", "-x", "@SUM(1)", "\tx", "\rx", "<b>&'\"", "a,b\nc"]


def test_hostile_names_ids_and_groups_are_inert(run, tmp_path):
    n = 8 * len(HOSTILE)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"=id": HOSTILE * 8, "@group, really": np.repeat(HOSTILE[:4], n // 4)})
    for name in ("-x", "<script>alert(1)</script>", 'say "x"\nthen'):
        frame[name] = rng.normal(size=n)
    frame["+text"] = np.tile(["=1", "[bold]b"], n // 2)
    frame.to_csv("h.csv", index=False, quoting=csv.QUOTE_ALL)
    result = run("fit", "h.csv", "--sensitive", "@group, really", "--id", "=id", "--alpha", "1")
    assert result.exit_code == 0, result.stderr
    assert run("score", "evenout-out/model.skops", "h.csv", "--id", "=id", "--out", "s.csv", "--quiet").exit_code == 0
    for file in ("evenout-out/scores.csv", "s.csv"):
        with (tmp_path / file).open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
        assert len(rows) == n + 1
        assert [row[0] for row in rows[1:9]] == ["'" + text if text[0] in "=+-@\t\r" else text for text in HOSTILE]
        assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "@", "\t", "\r")]
        assert all(float(cell) == float(cell) for row in rows[1:] for cell in row[-2:])


def test_text_in_messages_cannot_act_on_the_terminal(run, tmp_path):
    (tmp_path / "a.csv").write_text("sex,\x1b]0;x\x07\nf,1\nm,2\n")
    result = run("fit", "a.csv", "--sensitive", "no\x1b[2Jne")
    assert_refused(result, "no")
    assert "\x1b" not in result.stderr
    assert "\x07" not in result.stderr
