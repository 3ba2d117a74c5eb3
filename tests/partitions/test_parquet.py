import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenout import FairOutlierEnsemble
from evenout.out_of_core.engines import Engine
from evenout.out_of_core.parquet import open_folder, parquet_parts
from evenout.storage.output import atomic_folder


@pytest.fixture
def folder(table, tmp_path):
    """Three files, the second with three row groups, the third without rows."""
    frame = table.joined.assign(id=[f"case {i}" for i in range(450)])
    (tmp_path / "data").mkdir()
    for name, rows, size in (("a", slice(0, 100), 1000), ("b", slice(100, 450), 120), ("c", slice(0, 0), 10)):
        place = tmp_path / "data" / f"{name}.parquet"
        pq.write_table(pa.Table.from_pandas(frame.iloc[rows], preserve_index=False), place, row_group_size=size)
    return tmp_path / "data"


def _engine(where, **columns):
    columns = {"sensitive": ["sex", "old"], "exclude": ["id"], **columns}
    return Engine(*parquet_parts(where, **columns))


def _model():
    return FairOutlierEnsemble(alpha=300.0, random_state=0)


def test_a_folder_is_fitted_as_the_table_in_memory(folder, table, monkeypatch):
    memory = _model().fit(table.X, sensitive_features=table.sensitive)
    for rows in (1, 250, 10_000):  # one part per row group, some together, one per file
        monkeypatch.setattr("evenout.out_of_core.parquet.ROWS", rows)
        model = _model().fit_partitions(_engine(folder))
        np.testing.assert_allclose(model.weights_, memory.weights_, rtol=1e-8)
        assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]


def test_parts_say_which_rows_they_hold(folder, monkeypatch):
    monkeypatch.setattr("evenout.out_of_core.parquet.ROWS", 250)
    parts, header = parquet_parts(str(folder / "[ab].parquet"), sensitive=["sex"], features=["b", "a"])
    assert [(part.source[-9:], part.first_row) for part in parts] == [
        ("a.parquet", 0),
        ("b.parquet", 0),
        ("b.parquet", 240),
    ]
    X, sensitive, given, labels = parts[2].load()
    assert X.columns.tolist() == header.columns.tolist() == ["b", "a"]
    assert len(X) == len(sensitive) == 110
    assert given is labels is None


def test_whole_numbers_stay_whole_beside_missing_values(tmp_path):
    for name, values in (("a", [1, 0]), ("b", [1, None])):
        pd.DataFrame({"x": [0.5, 1.5], "g": pd.array(values, dtype="Int64")}).to_parquet(tmp_path / f"{name}.parquet")
    parts, _ = parquet_parts(tmp_path, sensitive=["g"])
    assert [str(value) for value in parts[1].load()[1]["g"]] == ["1", "None"]


def _damaged(folder, **_):
    (folder / "b.parquet").write_bytes((folder / "b.parquet").read_bytes()[:-300])


def _rotten(folder, **_):
    """A footer in order, but pages that are not."""
    data = bytearray((folder / "b.parquet").read_bytes())
    data[4:2000] = bytes(1996)
    (folder / "b.parquet").write_bytes(data)


def _text(folder, **_):
    (folder / "b.parquet").write_text("a,b\n1,2\n")


def _other_type(folder, table):
    pd.concat([table.X.astype("float32"), table.sensitive], axis=1).to_parquet(folder / "b.parquet")


def _no_column(folder, table):
    pd.concat([table.X.drop(columns="c"), table.sensitive], axis=1).to_parquet(folder / "b.parquet")


def _no_group(folder, table):
    frame = table.joined.iloc[:50].copy()
    frame.loc[frame.index[7], "sex"] = None
    frame.to_parquet(folder / "b.parquet", index=False)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_damaged, "b.parquet is no Parquet file, or a damaged one"),
        (_rotten, "b.parquet is (a damaged Parquet file|no Parquet file)"),
        (_text, "b.parquet is no Parquet file, or a damaged one"),
        (_other_type, "b.parquet: column 'a' holds float, but double in .*a.parquet"),
        (_no_column, "b.parquet has 0 columns 'c', but .*a.parquet has one"),
        (_no_group, "b.parquet: sensitive_features has missing values in 1 of 50 rows .first: row 7"),
    ],
)
def test_bad_files_are_named_in_one_line_and_nothing_is_written(spoil, message, folder, table, tmp_path):
    spoil(folder, table=table)
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message) as caught, atomic_folder(out) as work:
        _model().fit_partitions(_engine(folder), scores_to=work)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sensitive": ["gender"]}, "a.parquet has no column 'gender'; its columns are 'a', 'b'"),
        ({"exclude": []}, "column 'id' holds text, not numbers; encode it, or leave it out"),
        ({"exclude": ["a", "b", "c", "d", "id"]}, "has no feature column beside"),
    ],
)
def test_wrong_columns_are_named(columns, message, folder):
    with pytest.raises(ValueError, match=message):
        _engine(folder, **columns)


def test_places_without_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="has no Parquet file; name a folder"):
        parquet_parts(tmp_path, sensitive=["g"])
    with pytest.raises(ValueError, match=r"gone\.parquet does not exist"):
        parquet_parts([tmp_path / "gone.parquet"], sensitive=["g"])


def test_folders_are_opened_by_the_name_of_an_engine(folder):
    columns = {"sensitive": ["sex", "old"], "exclude": ["id"]}
    with open_folder(folder, **columns, n_threads=2) as source:
        assert type(source) is Engine
        assert source.n_threads == 2
    with pytest.raises(ValueError, match="engine='spark' is unknown"), open_folder(folder, engine="spark"):
        pass
    with pytest.raises(ValueError, match="needs engine='dask'"), open_folder(folder, scheduler="tcp://x:1"):
        pass
