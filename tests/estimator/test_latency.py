"""One row, as a service asks for it: the same score as among others, from any thread, and no work on the index."""

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from evenout import BlindRepair, FairOutlierEnsemble, Resemblance
from evenout.detectors import neighbours, search
from evenout.persistence import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore::evenout.exceptions.EvenoutWarning")

N, THREADS = 400, 4
FAST = HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=8, early_stopping=False, categorical_features=None)
EVERYTHING = {"correction": Resemblance(classifier=FAST, weights="free"), "learn": True, "scaling": "rank"}
METHODS = ("score_samples", "decision_function", "predict", "base_scores", "detector_scores", "contributions")


def make_rows(n, seed):
    """A third lies on a grid, where distances are tied, and some far outside."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[: n // 3] = np.round(X[: n // 3], 1)
    X[n // 3 : n // 3 + 4] *= 1e4
    return X


def fit(X, **settings):
    rng, values = np.random.default_rng(0), np.asarray(X)
    groups = (values[:, 0] + rng.normal(size=len(X)) > 0).astype(int) + (rng.random(len(X)) < 0.3)
    labels = np.where(rng.random(len(X)) < 0.3, np.abs(values).max(axis=1) > 2.0, np.nan)
    model = FairOutlierEnsemble(random_state=0, **settings)
    return model.fit(X, sensitive_features=groups, labels=labels if settings.get("learn") else None)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    X = make_rows(N, seed=0)
    found = {
        "default": fit(X),
        "paper": fit(X, detectors="paper", standardize=False, combination="greedy"),
        "everything": fit(X, **EVERYTHING),
    }
    path = tmp_path_factory.mktemp("models") / "model.skops"
    save_model(found["everything"], path)
    return found | {"loaded": load_model(path), "path": path}


@pytest.fixture(scope="module")
def asked():
    """New rows, with training rows among them."""
    rows = make_rows(1000, seed=1)
    rows[5:40:7] = make_rows(N, seed=0)[5:40:7]
    return rows


def in_parts(score, rows, size):
    return np.concatenate([score(rows[at : at + size]) for at in range(0, len(rows), size)])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["default", "paper", "everything", "loaded"])
def test_a_row_has_the_same_score_alone_among_ten_and_among_a_thousand(models, asked, name, method):
    score = getattr(models[name], method)
    many, some = score(asked), slice(0, 1000, 23)
    for size in (1, 10, search.FEW, search.FEW + 1):
        np.testing.assert_array_equal(in_parts(score, asked[some], size), many[some], err_msg=str(size))


@pytest.mark.parametrize("combination", ["average", "maximum", "median", "aom", "moa", "greedy"])
def test_so_it_has_by_any_combination(asked, combination):
    columns = np.abs(asked)[:300] @ np.random.default_rng(0).random((5, 13))
    model = FairOutlierEnsemble("precomputed", combination=combination, random_state=0)
    model.fit(columns, sensitive_features=np.arange(300) % 2)
    np.testing.assert_array_equal(in_parts(model.base_scores, columns, 1), model.target_)


def test_so_it_has_by_a_repair_and_with_many_groups(asked):
    groups = np.arange(1000) % 11
    rows = np.clip(asked, -5, 5) + np.outer(groups, [0.3, 0, 0, 0, 0])
    scores = rows.sum(axis=1)
    repair = BlindRepair(classifier=FAST, random_state=0).fit(scores, rows, sensitive_features=groups)
    many = repair.transform(scores, rows)
    one = [repair.transform(scores[i : i + 1], rows[i : i + 1])[0] for i in range(40)]
    assert any(repair.lambda_.values())
    np.testing.assert_array_equal(one, many[:40])


@pytest.mark.parametrize("name", ["default", "everything"])
def test_threads_get_the_scores_that_one_gets(models, asked, name):
    """The models are fresh: what the first row builds is built while all threads ask for it."""
    rows = asked[: 25 * THREADS]
    expected = in_parts(models[name].score_samples, rows, 1)
    fresh = load_model(models["path"]) if name == "everything" else pickle.loads(pickle.dumps(models[name]))
    together = Barrier(THREADS)

    def ask(part):
        together.wait()
        return in_parts(fresh.score_samples, part, 1)

    with ThreadPoolExecutor(THREADS) as pool:
        found = np.concatenate(list(pool.map(ask, np.split(rows, THREADS))))
    np.testing.assert_array_equal(found, expected)


def test_the_index_is_cut_once(models, asked, monkeypatch):
    fresh, cut, cut_blocks = load_model(models["path"]), [], neighbours.cut_blocks
    monkeypatch.setattr(
        neighbours, "cut_blocks", lambda *given, **how: cut.append(len(given[0])) or cut_blocks(*given, **how)
    )
    in_parts(fresh.score_samples, asked[:20], 1)
    assert [n for n in cut if n > 1] == [len(part.neighbours.locations) for part in seeking(fresh)]


def seeking(model):
    """The parts that seek neighbours."""
    return [part for part in model._result.scores.pool.parts if hasattr(part, "neighbours")]


def test_one_row_asks_for_little_memory():
    X, row = make_rows(6000, seed=2), np.full((1, 5), 0.123)
    model = FairOutlierEnsemble(scaling="rank", random_state=0).fit(X, sensitive_features=np.arange(len(X)) % 2)
    model.score_samples(row)
    tracemalloc.start()
    model.score_samples(row)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 10


def test_frames_have_the_scores_of_their_values(models, asked):
    frame = pd.DataFrame(asked, columns=[*"abcde"])
    named = fit(pd.DataFrame(make_rows(N, seed=0), columns=[*"abcde"]))
    for m in (1, 10):
        expected = models["default"].score_samples(asked[:m])
        np.testing.assert_array_equal(named.score_samples(frame[:m]), expected)
