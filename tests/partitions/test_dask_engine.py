import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble
from evenout.out_of_core import dask_engine
from evenout.out_of_core.dask_engine import DaskEngine, collection_engine, dask_client, is_collection, score_collection
from evenout.out_of_core.engines import Engine, Partition
from evenout.out_of_core.parquet import parquet_parts

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

COLUMNS = ["sex", "old"]


@contextmanager
def cluster(**settings):
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50, **settings}
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": None}),  # a machine that was asleep has lost no worker
        distributed.LocalCluster(**settings) as own,
        distributed.Client(own) as found,
    ):
        yield found


@pytest.fixture(scope="module", params=["threads", pytest.param("processes", marks=pytest.mark.long)])
def client(request):
    """Workers in this process; in `tests/cli/test_folder.py` one has a process of its own by default, too."""
    with cluster(processes=request.param == "processes") as found:
        yield found


@pytest.fixture(scope="module")
def memory(table):
    return _model().fit(table.X, sensitive_features=table.sensitive)


def _model(**settings):
    """For a given alpha weights agree with memory; a request goes by an estimate that memory can better."""
    return FairOutlierEnsemble(random_state=0, **{"alpha": 300.0, **settings})


def _frame_engine(table, n_parts):
    frame = dd.from_pandas(table.joined, npartitions=n_parts)
    assert frame.npartitions == n_parts
    return collection_engine(frame[list(table.X.columns)], frame[COLUMNS])


def _assert_weights(model, other, rtol=1e-8):
    np.testing.assert_allclose(model.weights_, other.weights_, rtol=0, atol=rtol * np.abs(other.weights_).max())
    np.testing.assert_allclose(model.offset_, other.offset_, rtol=rtol)


@pytest.mark.parametrize("n_parts", [1, 3, 17])
def test_frames_give_the_weights_of_memory(n_parts, table, memory):
    model = _model().fit_partitions(_frame_engine(table, n_parts))
    _assert_weights(model, memory)
    assert model.feature_names_in_.tolist() == table.X.columns.tolist()


def test_arrays_give_the_weights_of_memory(table, memory):
    X = da.from_array(table.X.to_numpy(), chunks=(100, 2))
    groups = da.from_array(table.sensitive.to_numpy(dtype=str), chunks=(450, 1))  # cut in other places
    _assert_weights(_model().fit_partitions(collection_engine(X, groups)), memory)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own reading of Parquet
def test_columns_of_one_folder_stay_aligned(table, memory, tmp_path):
    for i, rows in enumerate(np.array_split(np.arange(450), 4)):
        table.joined.iloc[rows].to_parquet(tmp_path / f"{i}.parquet", index=False)
    frame = dd.read_parquet(tmp_path)  # Dask reads small files together, the more of them the fewer the columns
    model = _model().fit(frame[list(table.X.columns)], sensitive_features=frame[COLUMNS])
    _assert_weights(model, memory)


def test_empty_partitions_change_nothing(table, memory):
    joined = table.joined
    frame = dd.from_map(lambda rows: joined.iloc[slice(*rows)], [(0, 0), (0, 200), (200, 200), (200, 450)])
    engine = collection_engine(frame[list(table.X.columns)], frame[COLUMNS])
    _assert_weights(_model().fit_partitions(engine), memory)


def test_scores_are_lazy_and_those_of_memory(table, memory):
    frame = dd.from_pandas(table.X, npartitions=4)
    scores = score_collection(memory.outlier_scores, frame)
    assert isinstance(scores, da.Array)
    np.testing.assert_array_equal(scores.compute(), memory.outlier_scores(table.X))
    X = frame.to_dask_array(lengths=True)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        parts = score_collection(memory.contributions, X, columns=19).compute()
    np.testing.assert_array_equal(parts, memory.contributions(table.X))
    np.testing.assert_array_equal(memory.contributions(frame).compute(), parts)
    emptied = frame[frame["a"] > 1e9]
    assert score_collection(memory.outlier_scores, emptied).compute().shape == (0,)


@pytest.mark.long
def test_a_killed_worker_costs_a_retry_and_nothing_else(table, tmp_path):
    driver, sign = os.getpid(), tmp_path / "killed"

    def deadly(X):
        """Kill the worker process in which this detector first scores rows."""
        if os.getpid() != driver and not sign.exists():
            sign.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.abs(X).max(axis=1)

    detectors = ["paper", ("deadly", deadly)]
    settings = {"detectors": detectors, "reference_size": 300}
    with cluster() as client:
        pids = set(client.run(os.getpid).values())
        model = _model(**settings).fit_partitions(_frame_engine(table, 6))
        assert sign.exists()
        client.wait_for_workers(2, timeout=30)
        assert len(pids & set(client.run(os.getpid).values())) == 1
        _assert_weights(model, _model(**settings).fit_partitions(_frame_engine(table, 6)))
        left = client.run(lambda dask_worker: [path.name for path in Path(dask_worker.local_directory).iterdir()])
    assert not [name for names in left.values() for name in names if name.startswith("evenout-")]


@pytest.mark.usefixtures("client")
def test_bad_rows_are_reported_from_the_workers_in_one_line(table, tmp_path):
    frame = table.joined
    frame.iloc[:200].to_parquet(tmp_path / "a.parquet", index=False)
    bad = frame.iloc[200:].astype({"sex": object})
    bad.iloc[3, bad.columns.get_loc("sex")] = None
    bad.to_parquet(tmp_path / "b.parquet", index=False)
    engine = DaskEngine(*parquet_parts(tmp_path, sensitive=COLUMNS))
    with pytest.raises(ValueError, match=r"b\.parquet: sensitive_features has missing values in 1 of 250") as caught:
        _model().fit_partitions(engine)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("client")
def test_sampled_fit_does_not_depend_on_the_workers(tables, engine):
    table = tables(1500)
    detectors = [lambda X: np.linalg.norm(X, axis=1), lambda X: np.abs(X[:, 0])]
    fit = partial(FairOutlierEnsemble.fit_partitions, exact_rows=100)
    settings = {"alpha": 1.0, "detectors": detectors, "reference_size": 200}
    by_cluster = fit(_model(**settings), _frame_engine(table, 4))
    alone = fit(_model(**settings), engine(table, 4))
    np.testing.assert_allclose(by_cluster.weights_, alone.weights_, rtol=1e-12)


@pytest.mark.usefixtures("client")
def test_workers_measure_units_and_bring_labels_as_one_process_does(tables):
    table, rng = tables(900), np.random.default_rng(0)
    X, known = table.X, pd.Series(np.where(rng.random(900) < 0.3, (table.X["a"] > 1).astype(float), np.nan))
    columns = [X, table.sensitive, None, known]
    by_cluster = collection_engine(*(None if c is None else dd.from_pandas(c, npartitions=3) for c in columns))
    pieces = [[None if c is None else c.iloc[rows] for c in columns] for rows in np.split(np.arange(900), 3)]
    alone = Engine([Partition(i, "", partial(tuple, own)) for i, own in enumerate(pieces)], X.iloc[:0])
    settings = {"detectors": "paper", "learn": True, "reference_size": 200}
    fits = [_model(**settings).fit_partitions(engine, exact_rows=100) for engine in (by_cluster, alone)]
    assert fits[0].label_weight_ == pytest.approx(fits[1].label_weight_, rel=1e-9)
    assert fits[0].label_weight_ > 0.5
    np.testing.assert_allclose(fits[0].base_scores(X), fits[1].base_scores(X), rtol=1e-9)


def test_unlike_partitions_are_refused(table):
    X = dd.from_pandas(table.X, npartitions=3)
    with pytest.raises(ValueError, match="sensitive_features has 2 partitions, but X has 3"):
        collection_engine(X, dd.from_pandas(table.sensitive, npartitions=2))
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        collection_engine(X, None)
    with pytest.raises(ValueError, match="sensitive_features is DataFrame; over partitions give Dask"):
        collection_engine(X, table.sensitive)
    sensitive = table.sensitive  # workers cannot import the class of the table itself
    uneven = dd.from_map(lambda rows: sensitive.iloc[slice(*rows)], [(0, 140), (140, 290), (290, 450)])
    with pytest.raises(ValueError, match=r"partition [02]: sensitive_features has 1[46]0 rows, but X has 150"):
        _model().fit_partitions(collection_engine(X, uneven))
    chunks = da.zeros((20, 2), chunks=(5, 2))
    with pytest.raises(ValueError, match="sensitive_features has 19 rows, but X has 20"):
        collection_engine(chunks, da.zeros(19, chunks=5))


def test_collections_are_told_from_tables(table):
    assert is_collection(dd.from_pandas(table.X, npartitions=2))
    assert is_collection(da.zeros((2, 2)))
    assert not is_collection(table.X)


def test_a_missing_extra_or_scheduler_is_one_clear_line(monkeypatch):
    with (
        pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"),
        dask_client("tcp://127.0.0.1:1", timeout=0.3),
    ):
        pass
    monkeypatch.setattr(dask_engine.importlib.util, "find_spec", lambda _: None)
    with (
        pytest.raises(ValueError, match=r"needs Dask; install it with: pip install 'evenout\[dask\]'"),
        dask_client(),
    ):
        pass


@pytest.mark.long
def test_two_processes_may_fill_an_empty_cache_at_once(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "from evenout.core.parallel import compiled\n"
        "@compiled()\n"
        "def triangle(n):\n"
        "    total = 0\n"
        "    for i in range(n + 1):\n"
        "        total += i\n"
        "    return total\n"
        "print(triangle(100))\n"
    )
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "import kernel"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, env=settings, cwd=tmp_path, **pipes) for _ in range(2)]
    printed = [process.communicate() for process in both]
    assert printed == [("5050\n", "")] * 2
    files = [file.suffix for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert sorted(files) == [".nbc", ".nbi"]


@pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning")
def test_a_request_says_what_it_says_in_memory(table):
    model = _model(alpha=None).fit_partitions(_frame_engine(table, 3))
    memory = _model(alpha=None).fit(table.X, sensitive_features=table.sensitive)
    assert model.path_.cross.refitted
    np.testing.assert_allclose(model.bias_reduction_interval_, memory.bias_reduction_interval_, rtol=1e-8)
    low, high = model.bias_reduction_interval_
    assert low < model.bias_reduction_ < high


def test_rows_that_belong_together_need_memory(table):
    X, sensitive = (dd.from_pandas(part, npartitions=2) for part in (table.X, table.sensitive))
    for more in ({"clusters": np.arange(450)}, {"sample_weight": np.ones(450)}):
        with pytest.raises(ValueError, match="clusters and sample_weight need rows in memory"):
            _model().fit(X, sensitive_features=sensitive, **more)


@pytest.mark.usefixtures("client")
def test_a_worker_without_the_device_is_named_in_one_line(table, memory, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    model = copy(memory).set_params(device="cuda")
    engine = DaskEngine([Partition(0, "part-0", partial(tuple, (table.X, table.sensitive)))], table.X.iloc[:0])
    with pytest.raises(ValueError, match=r"^machine '.*': device='cuda' was asked for, but torch finds no") as caught:
        model.score_partitions(engine, tmp_path)
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]
