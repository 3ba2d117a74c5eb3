"""Detectors on a device over partitions: the same scores, sent there once; a machine without one says so."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, gpu
from evenout.detectors.pool import fit_pool
from evenout.fitting.passes import RawScores, Ready, Scorer, Walks, keep_part

torch = pytest.importorskip("torch")

from evenout.gpu import _torch_forest, _torch_neighbours  # noqa: E402

TWINS = ("cross_fit_neighbours", "cross_fit_forest", "score")
N_PARTS = 5


@pytest.fixture
def asked(monkeypatch):
    """Where a GPU is asked for, its code runs on the CPU; which functions were asked, and what was sent."""
    found = Counter()

    def turned(name, function, *args, device, **settings):
        found[name] += device == "cuda"
        return function(*args, device="cpu", **settings)

    def counted(send, part, device):
        found["sent", id(part)] += 1
        return send(part, device)

    for name in TWINS:
        monkeypatch.setattr(gpu, name, partial(turned, name, getattr(gpu, name)))
    for module in (_torch_forest, _torch_neighbours):
        monkeypatch.setattr(module, "_send", partial(counted, module._send))
    monkeypatch.setattr(gpu, "check_device", lambda device: None)  # noqa: ARG005
    return found


def _fitted(engine, folder, **settings):
    folder.mkdir()
    model = FairOutlierEnsemble(**{"random_state": 0, "alpha": 20.0, "reference_size": 200} | settings)
    model.fit_partitions(engine, scores_to=folder)
    return model, _written(folder)


def _written(folder):
    return pd.concat([pd.read_parquet(file) for file in sorted(folder.iterdir())], ignore_index=True)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_partitions_have_the_same_scores_from_a_device(n_threads, asked, tables, engine, tmp_path):
    local = replace(engine(tables(900), N_PARTS), n_threads=n_threads)
    expected, scores = _fitted(local, tmp_path / "cpu")
    assert not asked
    model, found = _fitted(local, tmp_path / "device", device="cuda")
    pool = model._result.scores.pool
    np.testing.assert_array_equal(model.weights_, expected.weights_)
    pd.testing.assert_frame_equal(found, scores, check_exact=True)
    assert asked["score"] == N_PARTS * len(pool.parts)
    assert set(_sends(asked).values()) == {1}
    (tmp_path / "new").mkdir()
    counts = model.score_partitions(local, tmp_path / "new")
    assert asked["score"] == 2 * N_PARTS * len(pool.parts)
    assert set(_sends(asked).values()) == {1}
    assert counts[:, 0].sum() == 900
    np.testing.assert_array_equal(_written(tmp_path / "new")["fair_score"], found["fair_score"])


def _sends(asked):
    return {key: n for key, n in asked.items() if isinstance(key, tuple)}


def test_kept_scores_are_those_of_memory(asked, tables, engine, tmp_path):
    """Raw scores by detectors on the device, then codes of groups and folds."""
    table = tables(300)
    pool, _ = fit_pool("paper", table.X.to_numpy()[:150], seed=0)
    codes = {"sex=f, old=0": 0, "sex=f, old=1": 1}
    scorer = Scorer(pool, codes, 1, 0, partial(Path, tmp_path), device="cuda")
    found = Walks(engine(table, 3), scorer, {}, kept=False).over_parts(keep_part, RawScores.__add__)
    kept = np.concatenate([np.load(found.files[i]) for i in range(3)])
    np.testing.assert_array_equal(kept[:, :-2], pool.score(table.X.to_numpy()))
    names = ("sex=" + table.sensitive["sex"] + ", old=" + table.sensitive["old"].astype(str)).map(codes).fillna(-1)
    np.testing.assert_array_equal(kept[:, -2], names)
    np.testing.assert_array_equal(found.extremes(-1), [kept[:, :-2].min(axis=0), kept[:, :-2].max(axis=0)])
    assert asked["score"] == 3 * len(pool.parts)


def test_threads_take_turns_on_a_device(monkeypatch, table):
    inside, most = [], []

    def slow(part, X, *, n_threads, device):  # noqa: ARG001
        inside.append(part)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()
        return part.score(X)

    X = table.X.to_numpy()
    pool, _ = fit_pool("paper", X, seed=0)
    expected = pool.score(X)
    scorer = Scorer(pool, {}, 1, 0, Path, device="cuda")
    monkeypatch.setattr(gpu, "score", slow)
    ready = Ready(X, X, None, np.zeros((len(X), 2)))
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(scorer.score, [ready] * 8):
            np.testing.assert_array_equal(found[:, :-2], expected)
    assert set(most) == {1}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_machine_without_the_device_says_so_before_any_row_is_read(table, engine, tmp_path):
    def never():
        raise AssertionError("rows are read")

    local = engine(table, 3)
    deaf = replace(local, parts=[replace(part, load=never) for part in local.parts])
    with pytest.raises(ValueError, match=r"^device='cuda' was asked for, but torch finds no CUDA device"):
        FairOutlierEnsemble(device="cuda").fit_partitions(deaf)
    model = FairOutlierEnsemble(random_state=0, alpha=1.0).fit_partitions(local)
    for n_threads in (1, 2):
        with pytest.raises(ValueError, match=r"^machine '.*': device='cuda' was asked for, but torch finds") as caught:
            model.set_params(device="cuda").score_partitions(replace(deaf, n_threads=n_threads), tmp_path)
        assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("detectors", ["default", "paper"])
def test_a_gpu_gives_the_model_of_the_cpu(detectors, tables, engine, tmp_path):
    local = replace(engine(tables(3000), N_PARTS), n_threads=2)
    settings = {"detectors": detectors, "reference_size": 1000}
    expected, scores = _fitted(local, tmp_path / "cpu", **settings)
    model, found = _fitted(local, tmp_path / "device", device="cuda", **settings)
    np.testing.assert_array_equal(model.weights_, expected.weights_)
    pd.testing.assert_frame_equal(found, scores, check_exact=True)
