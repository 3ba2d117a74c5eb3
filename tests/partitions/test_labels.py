"""Labels over partitions teach the base score as they do in memory: all of them, wherever their rows are."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, Groups
from evenout.core.stacking import label_coverage, learn_stack
from evenout.detectors.pool import cross_fit_pool
from evenout.exceptions import LabelCoverageWarning
from evenout.fitting.passes import Pass
from evenout.fitting.rows import Partitions, hashed_folds, open_partitions
from evenout.fitting.settings import Settings
from evenout.metrics import roc_auc
from evenout.out_of_core.engines import Engine, Partition
from evenout.persistence import load_model, save_model

N = 700
REFERENCE = 200


def draw(n, seed):
    """Outliers are far out in the first feature alone; the others are louder and say nothing."""
    rng = np.random.default_rng(seed)
    X, outlier = rng.standard_t(3, size=(n, 4)), rng.random(n) < 0.15
    X[:, 0] = rng.normal(size=n) + 2.5 * outlier
    groups = np.where(rng.random(n) < 0.4, "a", "b")
    X[:, 1] *= 1.0 + (groups == "a")
    return pd.DataFrame(X, columns=list("wxyz")), outlier.astype(float), groups


X, OUTLIER, GROUPS = draw(N, 0)
RNG = np.random.default_rng(5)
CHANCES = np.where(X["x"] > 0, 0.5, 0.1)
LABELS = np.where(RNG.random(N) < CHANCES, OUTLIER, np.nan)

pytestmark = pytest.mark.filterwarnings(
    "ignore::evenout.exceptions.TargetNotReachedWarning", "ignore::evenout.exceptions.NoGapWarning"
)


def _radius(X):
    return np.linalg.norm(X, axis=1)


def _first(X):
    return X[:, 0]


def _second(X):
    return np.abs(X[:, 1])


def _make(**settings):
    given = {"detectors": "paper", "random_state": 3, "alpha": 5.0, "learn": True}
    return FairOutlierEnsemble(**{**given, **settings})


def _functions(**settings):
    """Detectors that learn nothing, so that those of a reference score as those of all rows do."""
    return _make(detectors=[_radius, _first, _second], **settings)


def _load(labels, chances, rows):
    return X.iloc[rows], GROUPS[rows], None, labels[rows], None if chances is None else chances[rows]


def _engine(cuts, labels=LABELS, chances=None, order=None):
    pieces = np.array_split(np.arange(N) if order is None else order, cuts)
    load = partial(_load, labels, chances)
    return Engine([Partition(i, f"part-{i}", partial(load, rows)) for i, rows in enumerate(pieces)], X.iloc[:0])


def _same(model, memory, rtol=1e-8):
    assert memory.label_weight_ > 0.2
    assert model.label_weight_ == pytest.approx(memory.label_weight_, rel=rtol)
    np.testing.assert_allclose(model.label_gap_, memory.label_gap_, rtol=rtol)
    np.testing.assert_allclose(model.base_scores(X), memory.base_scores(X), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(model.outlier_scores(X), memory.outlier_scores(X), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(model.flag_rates_, memory.flag_rates_, rtol=rtol)


@pytest.mark.parametrize("chances", [None, CHANCES], ids=["equal", "chosen"])
def test_a_reference_of_all_rows_is_memory(chances):
    make = partial(_make, detectors="diverse")
    memory = make().fit(X, sensitive_features=GROUPS, labels=LABELS, label_propensity=chances)
    for cuts in (1, 5):
        _same(make().fit_partitions(_engine(cuts, chances=chances)), memory)


@pytest.mark.parametrize("chances", [None, CHANCES], ids=["equal", "chosen"])
def test_rows_beyond_the_reference_teach_as_those_in_memory_do(chances):
    memory = _functions().fit(X, sensitive_features=GROUPS, labels=LABELS, label_propensity=chances)
    for cuts in (1, 5):
        model = _functions(reference_size=REFERENCE).fit_partitions(_engine(cuts, chances=chances))
        assert len(model.target_) < 1.2 * REFERENCE
        _same(model, memory)
        assert model._result.scores.stack.n_labels == (~np.isnan(LABELS)).sum()


def test_labels_sharpen_the_base_score_of_a_named_pool_beyond_its_reference():
    new, outlier, _ = draw(4000, 1)
    plain = _make(learn=False, reference_size=REFERENCE).fit_partitions(_engine(4))
    taught = _make(reference_size=REFERENCE).fit_partitions(_engine(4))
    memory = _make().fit(X, sensitive_features=GROUPS, labels=LABELS)
    reached = roc_auc(outlier, taught.base_scores(new))
    assert reached > roc_auc(outlier, plain.base_scores(new)) + 0.1
    assert abs(reached - roc_auc(outlier, memory.base_scores(new))) < 0.02
    assert taught.label_gap_[0] == pytest.approx(plain.path_.target_bias("training"), rel=1e-9)
    assert taught.label_gap_[1] == pytest.approx(taught.path_.target_bias("training"), rel=1e-9)


def test_each_model_learns_by_the_formula_for_all_rows_in_memory():
    """Rows of the reference scored by detectors without the fold, others by all detectors; then one plain stack."""
    model, engine = _make(reference_size=REFERENCE), _engine(4, chances=CHANCES)
    settings = Settings.read(model.get_params(deep=False), seed=3)
    with engine.scratch() as scratch:
        rows, partitions = open_partitions(Partitions(engine, scratch, 10**6, None), settings)
        beside = {"seed": 3, "units": rows.units, "sides": True, "feature_names": list(X)}
        pool, raw, without = cross_fit_pool("paper", rows.X, rows.folds, **beside)
        views = Pass.over(partitions, rows, settings, pool, lambda fold: raw if fold < 0 else without(fold))
    place = {row.tobytes(): i for i, row in enumerate(rows.X)}
    home = np.array([place.get(row.tobytes(), -1) for row in X.to_numpy()])
    assert (home >= 0).sum() == len(rows.X) < N / 2
    folds = hashed_folds(pool.inside(X.to_numpy()), rows.seed)
    for fold in range(-1, 5):
        found = views.models[fold + 1]
        scores = np.where((home >= 0)[:, None], views.raw(fold)[home], pool.score(X.to_numpy()))
        outside = folds != fold
        S, t = replace(found, stack=None).of_raw(scores[outside])
        least = 0.7 if label_coverage(t, LABELS[outside]) < 0.5 else 0.3
        right = learn_stack(S, t, LABELS[outside], propensity=CHANCES[outside], least_agreement=least)
        assert found.stack.n_labels == right.n_labels
        assert found.stack.label_weight == pytest.approx(right.label_weight, rel=1e-7)
        np.testing.assert_allclose(found.stack.weights, right.weights, rtol=1e-6, atol=1e-8)
        assert found.stack.intercept == pytest.approx(right.intercept, rel=1e-6)


def test_what_is_stated_of_a_fold_does_not_rest_on_its_labels():
    first = _make(reference_size=REFERENCE).fit_partitions(_engine(3))
    units = first._result.scores.pool.units
    inside = hashed_folds(units.apply(X.to_numpy()), 3) == 0
    changed = np.where(inside & ~np.isnan(LABELS), 1.0 - LABELS, LABELS)
    second = _make(reference_size=REFERENCE).fit_partitions(_engine(3, changed))
    held = [model.path_.cross.held.plain for model in (first, second)]
    np.testing.assert_array_equal(held[0][0], held[1][0])
    assert all(not np.array_equal(held[0][fold], held[1][fold]) for fold in range(1, 5))


@pytest.mark.parametrize("most", [40, 100])
def test_of_very_many_labels_some_are_learnt_from_whatever_the_partitions(most, monkeypatch):
    monkeypatch.setattr("evenout.fitting.passes.MOST", most)
    models = []
    for cuts, order in ((1, None), (6, RNG.permutation(N))):
        known = int((~np.isnan(LABELS)).sum())
        message = f"{known} rows have a label: the base score learns from {most} of them, drawn by content"
        with pytest.warns(UserWarning, match=message):
            models.append(_make(reference_size=REFERENCE).fit_partitions(_engine(cuts, order=order)))
        stack = models[-1]._result.scores.stack
        assert stack.n_labels == most
        share = np.nanmean(LABELS)
        assert abs(stack.n_positive / most - share) < 4 * np.sqrt(share * (1 - share) / most)
    first, second = models
    assert second.label_weight_ == pytest.approx(first.label_weight_, rel=1e-9)
    np.testing.assert_allclose(second.base_scores(X), first.base_scores(X), rtol=1e-8)


def test_labels_of_flagged_rows_alone_are_told_by_all_rows():
    plain = _make(learn=False, reference_size=REFERENCE).fit_partitions(_engine(2))
    t = plain.base_scores(X)
    labels = np.where(t > np.quantile(t, 0.9), OUTLIER, np.nan)
    with pytest.warns(LabelCoverageWarning, match=r"almost only among the 9\.\d% of rows with the highest base score"):
        _make(reference_size=REFERENCE).fit_partitions(_engine(2, labels))


def test_labels_serve_a_notion_and_the_base_score_at_once():
    settings = {"fairness": "equal_false_alarms", "groups": Groups(min_size=10)}
    memory = _functions(**settings).fit(X, sensitive_features=GROUPS, labels=LABELS)
    _same(_functions(**settings).fit_partitions(_engine(3)), memory)
    _same(_functions(**settings, reference_size=REFERENCE).fit_partitions(_engine(3)), memory)


def test_labels_of_one_kind_leave_the_base_score_as_it_is():
    labels = np.where(np.isnan(LABELS), np.nan, 0.0)
    taught = _functions(reference_size=REFERENCE).fit_partitions(_engine(2, labels))
    untaught = _functions(learn=False, reference_size=REFERENCE).fit_partitions(_engine(2))
    assert taught.label_weight_ == 0.0
    np.testing.assert_allclose(taught.base_scores(X), untaught.base_scores(X), rtol=1e-14)
    assert taught.label_gap_[0] == taught.label_gap_[1]
    assert np.isnan(untaught.label_gap_).all()


def test_lost_scratch_files_are_scored_again_with_their_labels():
    class Forgetful(Engine):
        @contextmanager
        def scratch(self):
            yield partial(Path, "no/such/folder")

    local = _engine(3)
    model = _make(reference_size=REFERENCE).fit_partitions(Forgetful(local.parts, local.header))
    _same(model, _make(reference_size=REFERENCE).fit_partitions(local), rtol=1e-13)


def test_dask_collections_bring_labels_and_chances(tmp_path):
    dd, da = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.array")
    memory = _functions().fit(X, sensitive_features=GROUPS, labels=LABELS, label_propensity=CHANCES)
    whole = X.assign(group=GROUPS, label=LABELS, chance=CHANCES)
    frame = dd.from_pandas(whole, npartitions=3)
    beside = {"sensitive_features": frame["group"], "labels": frame["label"], "label_propensity": frame["chance"]}
    model = _functions(reference_size=REFERENCE).fit(frame[list(X)], **beside)
    _same(model, memory)
    named = _make(reference_size=REFERENCE).fit(frame[list(X)], **beside)
    save_model(named, tmp_path / "m.skops")
    assert load_model(tmp_path / "m.skops").label_weight_ == named.label_weight_ > 0.2
    arrays = {name: da.from_array(whole[column].to_numpy(), chunks=300) for name, column in _ROLES.items()}
    model = _functions(reference_size=REFERENCE).fit(da.from_array(X.to_numpy(), chunks=(200, 4)), **arrays)
    assert model.label_weight_ == pytest.approx(memory.label_weight_, rel=1e-8)
    with pytest.raises(ValueError, match="label_propensity goes with labels, which are missing"):
        _functions().fit(frame[list(X)], sensitive_features=frame["group"], label_propensity=frame["chance"])


_ROLES = {"sensitive_features": "group", "labels": "label", "label_propensity": "chance"}


@pytest.mark.parametrize(
    ("labels", "chances", "message"),
    [
        (None, None, "learn=True needs labels: 1 for an outlier, 0 for none, missing where unknown"),
        (np.full(N, np.nan), None, "^labels has no label at all; give some, or leave learn out"),
        (np.where(np.arange(N) == 600, 2.0, LABELS), None, "^part-2: labels is '2.0' in row 133; labels must be 0"),
        (LABELS, np.where(np.arange(N) == 300, 0.0, 0.5), "^part-1: label_propensity must be a chance above 0"),
    ],
)
def test_wrong_labels_are_one_line(labels, chances, message):
    engine = _engine(3, LABELS if labels is None else labels, chances)
    if labels is None:
        parts = [Partition(p.index, p.source, lambda p=p: (*p.load()[:2], None, None, None)) for p in engine.parts]
        engine = Engine(parts, engine.header)
    with pytest.raises(ValueError, match=message):
        _functions().fit_partitions(engine)
