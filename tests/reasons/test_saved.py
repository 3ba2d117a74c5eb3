"""Reasons from a saved model alone; over Parquet folders and Dask as in memory."""

import numpy as np
import pandas as pd
import pytest

from evenout.exceptions import InputError
from evenout.out_of_core.parquet import open_folder
from evenout.persistence import load_model, save_model
from evenout.reasons import explain_partitions, reason_columns


def test_a_saved_model_gives_the_same_reasons(model, new, tmp_path):
    save_model(model, tmp_path / "model.skops")
    again = load_model(tmp_path / "model.skops").explain(new)
    found = model.explain(new)
    np.testing.assert_array_equal(again.parts.parts, found.parts.parts)
    pd.testing.assert_frame_equal(again.to_frame(), found.to_frame())


def test_a_model_without_a_background_says_what_to_do(model, new, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setitem(model._result.__dict__, "background", None)
        save_model(model, tmp_path / "old.skops")
    old = load_model(tmp_path / "old.skops")
    np.testing.assert_array_equal(old.outlier_scores(new), model.outlier_scores(new))
    with pytest.raises(InputError, match="saved before reasons were kept; fit it anew, and save it"):
        old.explain(new)


def test_columns_have_reasons_of_flagged_rows_alone(model, table):
    X, _ = table
    columns = reason_columns(model, X, 2)
    found = model.explain(X, n_reasons=2)
    assert list(columns) == ["change", "reason_1", "reason_2"]
    np.testing.assert_array_equal(columns["change"], found.changes)
    np.testing.assert_array_equal(columns["reason_1"] != "", found.flagged.any(axis=1))
    for row in np.flatnonzero(found.flagged.any(axis=1)):
        assert columns["reason_1"][row] == found.texts(row)[0]


def test_folders_give_the_reasons_of_memory(model, table, tmp_path):
    X, _ = table
    (tmp_path / "rows").mkdir()
    X[:100].to_parquet(tmp_path / "rows" / "a.parquet", index=False)
    X[100:].to_parquet(tmp_path / "rows" / "b.parquet", index=False)
    (tmp_path / "out").mkdir()
    with open_folder(str(tmp_path / "rows"), features=list(X)) as engine:
        written = explain_partitions(engine, model, 2, tmp_path / "out")
    found = pd.concat([pd.read_parquet(file) for file in sorted((tmp_path / "out").iterdir())])
    expected = reason_columns(model, X, 2)
    kept = expected["change"] != "not flagged"
    assert written == len(found) == kept.sum()
    np.testing.assert_array_equal(found["reason_1"], expected.loc[kept, "reason_1"])
    place = np.flatnonzero(kept)
    np.testing.assert_array_equal(found["row"], np.where(place < 100, place, place - 100))


def test_dask_gives_the_frame_of_memory(model, new):
    dd = pytest.importorskip("dask.dataframe")
    lazy = model.explain(dd.from_pandas(new, npartitions=3), n_reasons=2)
    found = lazy.compute(scheduler="synchronous")
    pd.testing.assert_frame_equal(found, model.explain(new, n_reasons=2).to_frame(), check_dtype=False)
