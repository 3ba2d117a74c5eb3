"""Files of every wrong kind end in one clear line; right ones are read as they are written."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenout.exceptions import EvenoutWarning
from evenout.tables.files import read_table, require_columns, sha256

RAGGED_SHORT = "a,b,c\n1,2,3\n4,5\n"
RAGGED_LONG = "a,b\n1,2\n3,4\n5,6,7\n"

WRONG = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"a,b\n", "has a header, but no rows"),
    "blank.csv": (b"\n\n\n", "has no header"),
    "zip.csv": (b"PK\x03\x04rest", "holds binary data"),
    "nul.csv": (b"a,b\n1,\x00\n", "holds binary data"),
    "utf16.csv": ("a,b\n1,2\n".encode("utf-16"), "is in UTF-16; save the file as UTF-8"),
    "latin.csv": (
        "a,b\n1,\xfc\n".encode() + b"3,\xe9\n",
        "line 3: byte 0xe9 is not UTF-8; save the file as UTF-8",
    ),
    "short.csv": (RAGGED_SHORT.encode(), "line 3: 2 fields, but the header has 3"),
    "long.csv": (RAGGED_LONG.encode(), "line 4: 3 fields, but the header has 2"),
    "after-quoted.csv": (b'a,b\n"x\ny",2\n3\n', "line 4: 1 field, but the header has 2"),
    "return.csv": (b"a,b\n1,x\ry\n", "line 2: not valid CSV (carriage return outside quotes)"),
    "quote.csv": (b'a,b\n"x,2\n3,4\n', "not valid CSV"),
    "twice.csv": (b"a,a,a (2)\n1,2,3\n", "more than one column 'a (2)'"),
    "nothing.csv": (b"a,b\n1,\x81\n", "line 2: byte 0x81 is not UTF-8"),
    "text.csv.gz": (b"a,b\n1,2\n", "is no gzip file, or a damaged one"),
    "cut.csv.gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-20], "is no gzip file, or a damaged one"),
    "fake.parquet": (b"PAR1 but not really", "is no Parquet file, or a damaged one"),
    "table.xlsx": (b"a,b\n1,2\n", "is of no known kind"),
}


@pytest.mark.parametrize("name", WRONG)
def test_read_table_says_in_one_line_what_is_wrong(name, tmp_path):
    content, words = WRONG[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as caught:
        read_table(tmp_path / name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_read_table_of_nothing_suggests_a_near_name(tmp_path):
    (tmp_path / "people.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"peple\.csv does not exist; did you mean .*people\.csv\?"):
        read_table(tmp_path / "peple.csv")
    with pytest.raises(ValueError, match="is a folder"):
        read_table(tmp_path)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_read_table_takes_other_separators_and_decimal_commas(mark, tmp_path):
    rows = [
        ["price", "big", "day", "name"],
        ["3,50 €", "1.234", "01.02.2020", "a,b"],
        ["1.234,5 €", "950", "1.3.2020", "c"],
    ]
    (tmp_path / "a.csv").write_text(
        "\n".join(mark.join([*row, "-1,5"]) for row in [rows[0], *rows[1:]]).replace("-1,5", "x", 1)
    )
    frame = read_table(tmp_path / "a.csv")
    assert frame["price"].tolist() == ["3.50 €", "1234.5 €"]
    assert frame["big"].tolist() == [1234, 950]
    assert frame["x"].tolist() == [-1.5, -1.5]
    assert frame["day"].tolist() == ["01.02.2020", "1.3.2020"]
    assert frame["name"].tolist() == ["a,b", "c"]


def test_read_table_keeps_points_where_no_decimal_comma_is_found(tmp_path):
    (tmp_path / "a.csv").write_text("x;y\n1.234;a\n0.5;b\n")
    assert read_table(tmp_path / "a.csv")["x"].tolist() == [1.234, 0.5]


def test_read_table_tells_of_windows_text_and_of_names_that_it_gives(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("name,x,x,\nJosé,1,2,3\n".encode("cp1252"))
    with pytest.warns(EvenoutWarning) as said:
        frame = read_table(file)
    assert [str(each.message).removeprefix(f"{file} ") for each in said] == [
        "is not UTF-8 (line 2), so it is read as Windows-1252; look at words with accents",
        "has more than one column 'x'; from here on the later ones are called 'x (2)'",
    ]
    assert frame.iloc[0].to_dict() == {"name": "José", "x": 1, "x (2)": 2, "Unnamed: 3": 3}


def test_read_table_refuses_names_that_must_be_there_once(tmp_path):
    (tmp_path / "a.csv").write_text("x,x\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv has more than one column 'x'; rename all but one"):
        read_table(tmp_path / "a.csv", once=["x"])


def test_read_table_keeps_types_gaps_and_every_digit(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(
        '\ufeffx,n,flag,word,code\n0.1,1,True,"a,""b""\nc",007\n,2,,NA,\n2.2250738585072014e-308,3,False,z,1\n'
    )
    frame = read_table(file, text=["code"])
    assert list(frame.columns) == ["x", "n", "flag", "word", "code"]
    np.testing.assert_array_equal(frame["x"], [0.1, np.nan, 2.2250738585072014e-308])
    assert frame["n"].tolist() == [1, 2, 3]
    assert frame["flag"].dropna().tolist() == [True, False]
    assert frame["word"].dropna().tolist() == ['a,"b"\nc', "z"]
    assert frame["code"].dropna().tolist() == ["007", "1"]
    assert frame.isna().sum().to_dict() == {"x": 1, "n": 0, "flag": 1, "word": 1, "code": 1}


def test_read_table_takes_verbatim_columns_as_they_are_written(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("id,x\n007,1\nNA,2\n,3\n1e3,4\n")
    assert read_table(file, verbatim=["id"])["id"].tolist() == ["007", "NA", "", "1e3"]


def test_read_table_reads_the_same_from_every_kind_of_file(tmp_path):
    frame = pd.DataFrame({"x": [1.5, np.nan, -3.25], "word": ["a", "b", None], "n": [1, 2, 3]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name), frame, check_dtype=False)


def test_read_table_takes_a_named_index_of_parquet_as_a_column_and_drops_a_nameless_one(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["p", "q"], name="person"))
    frame.to_parquet(tmp_path / "named.parquet")
    frame.rename_axis(None).to_parquet(tmp_path / "nameless.parquet")
    assert read_table(tmp_path / "named.parquet")["person"].tolist() == ["p", "q"]
    assert list(read_table(tmp_path / "nameless.parquet").columns) == ["x"]
    assert read_table(tmp_path / "nameless.parquet").index.tolist() == [0, 1]


def test_read_table_refuses_parquet_with_equal_columns_or_without_rows(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="more than one column 'a'"):
        read_table(tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match="no rows"):
        read_table(tmp_path / "none.parquet")


def test_require_columns_names_what_is_missing_and_what_is_near():
    require_columns(["a"], ["a", "b"], where="f")
    with pytest.raises(ValueError, match=r"f has no column 'incme' \(--drop\); did you mean 'Income'\?"):
        require_columns(["incme"], ["age", "Income"], where="f", use="--drop")
    with pytest.raises(ValueError, match=r"f has no column 'zzz'; its columns are 'age', 'Income'"):
        require_columns(["age", "zzz"], ["age", "Income"], where="f")


def test_sha256_is_that_of_the_bytes(tmp_path):
    file = Path(tmp_path / "abc")
    file.write_bytes(b"abc")
    assert sha256(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
