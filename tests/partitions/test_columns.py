import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenout import FairOutlierEnsemble
from evenout.out_of_core.engines import Engine
from evenout.out_of_core.parquet import count_unknown, encoded, learn_table, parquet_parts
from evenout.tables.encoder import TableEncoder


@pytest.fixture
def frame(table):
    """Numbers with gaps, text with gaps, truth values, and the protected columns."""
    rng = np.random.default_rng(5)
    n = len(table.X)
    jobs = np.array(["clerk", "cook", None, "smith"], dtype=object)[rng.integers(0, 4, size=n)]
    frame = table.joined.assign(job=jobs, moved=rng.random(n) < 0.3)
    frame.loc[rng.random(n) < 0.1, "b"] = np.nan
    frame.loc[:199, "job"] = None  # nothing but gaps in the first file
    return frame


@pytest.fixture
def engine_of(frame, tmp_path):
    def open_files(rows=((0, 200), (200, 200), (200, 320), (320, 450)), frame=frame):
        for i, (start, end) in enumerate(rows):
            part = frame.iloc[start:end].astype({"job": "string"})
            part.to_parquet(tmp_path / f"{i}.parquet", index=False)
        return Engine(*parquet_parts(tmp_path, sensitive=["sex", "old"], text=True))

    return open_files


def test_partitions_teach_the_encoder_of_the_whole_table(engine_of, frame):
    learnt = learn_table(engine_of())
    features = frame.drop(columns=["sex", "old"])
    whole = TableEncoder().fit(features)
    assert learnt.medians_ == whole.medians_
    assert learnt.categories_ == whole.categories_
    np.testing.assert_array_equal(learnt.transform(features), whole.transform(features))


def test_text_and_gaps_give_the_weights_of_memory(engine_of, frame):
    engine = engine_of()
    table = learn_table(engine)
    model = FairOutlierEnsemble(alpha=300.0, random_state=0).fit_partitions(encoded(engine, table))
    memory = FairOutlierEnsemble(alpha=300.0, random_state=0).fit(
        table.transform(frame.drop(columns=["sex", "old"])), sensitive_features=frame[["sex", "old"]]
    )
    np.testing.assert_allclose(model.weights_, memory.weights_, rtol=0, atol=1e-8 * np.abs(memory.weights_).max())


def test_a_file_with_gaps_alone_goes_with_any_type(tmp_path):
    for name, job in (("a", [None, None]), ("b", ["cook", None])):
        pd.DataFrame({"x": [1.0, 2.0], "job": pd.Series(job, dtype=object), "sex": ["f", "m"]}).to_parquet(
            tmp_path / f"{name}.parquet", index=False
        )
    assert pq.read_schema(tmp_path / "a.parquet").field("job").type == pa.null()
    table = learn_table(Engine(*parquet_parts(tmp_path, sensitive=["sex"], text=True)))
    assert table.categories_ == {"job": ["missing", "cook"]}


def test_unknown_texts_are_counted_over_all_partitions(engine_of, frame):
    table = learn_table(engine_of())
    later = frame.assign(job=np.where(np.arange(len(frame)) % 90 == 1, "judge", frame["job"]))
    engine = engine_of(frame=later)
    assert count_unknown(engine, table) == {"job": 5}
    row = encoded(engine, table).parts[0].load()[0].iloc[1]  # the second row of the first file
    assert not row[[name for name in row.index if name.startswith("job=")]].any()


def test_partitions_read_columns_as_memory_does(engine_of, frame):
    n = len(frame)
    rng = np.random.default_rng(0)
    odd = frame.assign(
        job=[f"job {i}" for i in range(n)],
        person_id=rng.permutation(n),
        day=pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        written=[f"{value}.01.2020" for value in rng.integers(10, 29, n)],
        paid=[f"${value:,}" for value in rng.integers(0, 9000, n)],
        town=[f"town {value}" for value in rng.geometric(0.02, n)],
        same="x",
    )
    engine, features = engine_of(frame=odd), odd.drop(columns=["sex", "old"])
    learnt, whole = learn_table(engine), TableEncoder().fit(features)
    assert learnt.columns_ == whole.columns_
    assert {"job", "person_id", "day", "written", "paid", "town", "same"} <= set(learnt.notes_)
    rows = np.concatenate([part.load()[0] for part in encoded(engine, learnt).parts])
    np.testing.assert_array_equal(rows, whole.transform(features))
    assert "person_id" in learn_table(engine, keep=["person_id"]).columns_used
    assert learn_table(engine_of(frame=frame.assign(job=None))).notes_["job"] == "left out, no value in any row"


def test_impossible_numbers_name_their_file(engine_of, frame):
    bad = frame.copy()
    bad.loc[202, "a"] = np.inf
    with pytest.raises(ValueError, match=r"2\.parquet: column 'a' is infinite in row 3; correct it") as caught:
        learn_table(engine_of(frame=bad))
    assert "\n" not in str(caught.value)
    table = learn_table(engine_of())
    with pytest.raises(ValueError, match=r"2\.parquet: column 'a' is infinite in row 3"):
        encoded(engine_of(frame=bad), table).parts[2].load()


def test_kinds_other_than_numbers_dates_and_text_are_refused(frame, tmp_path):
    frame.assign(day=[[1, 2]] * len(frame)).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"column 'day' holds list.*, not numbers, dates or text; encode it"):
        parquet_parts(tmp_path, sensitive=["sex", "old"], text=True)
