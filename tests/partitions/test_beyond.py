import dataclasses
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenout import FairOutlierEnsemble, Groups, Individual
from evenout.detectors.fairlof import FairLOF
from evenout.exceptions import ConstantScoreWarning, SmallGroupWarning
from evenout.metrics import flag_rates


def _spread(S, codes):  # noqa: ARG001
    return np.cov(S.T)


SETTINGS = {
    "default": {"alpha": 300.0},
    "published": {"alpha": 300.0, "combination": "maximum", "correction": "published", "judged_on": "training"},
    "unweighted": {"alpha": 30.0, "combination": "greedy", "weighting": "uniform"},
    "constrained": {"alpha": 200.0, "combination": "aom", "correction": "nonnegative"},
    "both notions": {"fairness": {"demographic_parity": 1, "individual": 1}, "alpha": 2.0},
    "own form": {"fairness": _spread, "alpha": 3.0},
    "group-aware": {"detectors": ["paper", FairLOF(lambda_=0.4)], "alpha": 1.0},
    "diverse": {"detectors": "diverse", "contamination": 13, "alpha": 50.0},
    "default pool": {"detectors": "default", "standardize": True, "alpha": 50.0},
    "standardised": {"fairness": "individual", "standardize": True, "alpha": 2.0},
}
REQUESTS = {
    "default": {},
    "confidence": {"bias_reduction": 0.5, "confidence": 0.9},
    "constrained": {"combination": "aom", "correction": "nonnegative", "bias_reduction": 0.2},
    "flag rates": {"flag_rate_ratio": 0.4},
}


def _radius(X):
    return np.linalg.norm(X, axis=1)


def _first(X):
    return np.abs(X[:, 0])


def _largest(X):
    return X.max(axis=1)


def _nothing(X):
    return np.zeros(len(X))


def _model(**settings):
    return FairOutlierEnsemble(random_state=3, **settings)


def _quick(**settings):
    """A model of three simple functions with a given alpha."""
    return _model(detectors=[_radius, _first, _largest], **{"alpha": 10.0, **settings})


def _assert_same(model, other, rtol=1e-8):
    """Weights to 1e-8 of the largest, and everything that follows from them on all rows."""
    scale = np.abs(other.weights_).max()
    np.testing.assert_allclose(model.weights_, other.weights_, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(model.alpha_, other.alpha_, rtol=rtol)
    np.testing.assert_allclose(model.offset_, other.offset_, rtol=rtol)
    np.testing.assert_allclose(
        model.path_.bias(model.alpha_, "training"), other.path_.bias(other.alpha_, "training"), rtol=1e-6
    )
    assert model.group_names_ == other.group_names_
    assert model.group_counts_.tolist() == other.group_counts_.tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_weights_are_those_of_memory_for_any_partitions(name, table, engine):
    settings = SETTINGS[name]
    memory = _model(**settings).fit(table.X, sensitive_features=table.sensitive)
    rounding = 1e-5 if name == "both notions" else 1e-8  # pairs are summed in float32, in another order
    for cuts in (1, 3, 17) if name in ("default", "published") else (4,):
        model = _model(**settings).fit_partitions(engine(table, cuts))
        _assert_same(model, memory, rounding)
        assert model.rank_error_ == 0
    scores = model.outlier_scores(table.X, sensitive_features=table.sensitive)
    np.testing.assert_allclose(scores, memory.outlier_scores_, rtol=rounding, atol=rounding)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(model.target_, memory.target_, rtol=1e-12)
    for column, y in enumerate((memory.target_, memory.outlier_scores_)):
        rates = flag_rates(y, sensitive_features=table.sensitive, contamination=memory.contamination)
        assert model.flag_rates_[:, column].tolist() == pytest.approx(list(rates.values()))


@pytest.mark.filterwarnings("ignore::evenout.exceptions.TargetNotReachedWarning")
@pytest.mark.parametrize("name", REQUESTS)
def test_requests_go_by_rows_that_nothing_has_seen_as_in_memory(name, table, engine):
    model = _model(**REQUESTS[name]).fit_partitions(engine(table, 4))
    again = _model(**REQUESTS[name]).fit_partitions(engine(table, 1))
    _assert_same(again, model)
    claims = [(m.bias_reduction_, *m.bias_reduction_interval_, m.request_met_) for m in (model, again)]
    np.testing.assert_allclose(*claims, rtol=1e-6)
    assert model.path_.cross.refitted
    memory = _model(**REQUESTS[name]).fit(table.X, sensitive_features=table.sensitive)
    _assert_same(model, memory)
    np.testing.assert_allclose(model.path_.table().to_numpy(), memory.path_.table().to_numpy(), rtol=1e-6)


def test_small_groups_are_left_out_as_in_memory(table, engine):
    sensitive = table.sensitive["sex"].to_numpy(dtype=object).copy()
    sensitive[:20] = "x"
    changed = dataclasses.replace(table, sensitive=pd.DataFrame({"sex": sensitive}))
    models = []
    for fit in (
        lambda model: model.fit(changed.X, sensitive_features=changed.sensitive),
        lambda model: model.fit_partitions(engine(changed, 5)),
    ):
        with pytest.warns(SmallGroupWarning, match=r"'x' \(20\); their rows are scored, but not compared") as caught:
            models.append(fit(_quick()))
        assert len(caught) == 1
    memory, model = models
    _assert_same(model, memory)
    assert model.left_out_groups_ == memory.left_out_groups_ == {"x": 20}
    assert model.path_.cross.whole.counts[0] == 450


def test_with_fewer_than_two_groups_the_scores_are_the_base_scores(table, engine):
    for settings in ({}, {"fairness": "individual"}, {"fairness": _spread}):
        with pytest.warns(SmallGroupWarning, match="fewer than two groups are left to compare"):
            model = _quick(groups=Groups(min_size=150), **settings).fit_partitions(engine(table, 3))
        np.testing.assert_array_equal(model.outlier_scores_, model.target_)
        assert model.group_names_ == ("sex=f, old=0",)
        assert (model.alpha_, model.request_met_) == (0.0, False)
        assert np.isnan(model.bias_reduction_)


def test_a_count_of_rows_is_flagged_over_all_partitions(table, engine, tmp_path):
    _quick(contamination=37).fit_partitions(engine(table, 4), scores_to=tmp_path)
    written = pd.concat([pd.read_parquet(file) for file in sorted(tmp_path.iterdir())])
    assert written["flagged"].sum() == 37
    with pytest.raises(ValueError, match="contamination=226 is more than half of the 450 rows"):
        _quick(contamination=226).fit_partitions(engine(table, 4))


def test_empty_partitions_and_partitions_of_one_group_change_nothing(table, engine):
    order = np.argsort(table.sensitive.agg(lambda row: f"{row.iloc[0]}{row.iloc[1]}", axis=1), kind="stable")
    by_group = table.taken(order)
    memory = _quick().fit(by_group.X, sensitive_features=by_group.sensitive)
    _assert_same(_quick().fit_partitions(engine(by_group, [0, 0, 50, 51, 51, 51, 400, 450])), memory)


def test_unknown_and_small_groups_are_treated_as_in_memory(table, engine):
    sensitive = table.sensitive.astype(object).copy()
    sensitive.iloc[5:30, 0] = None
    sensitive.iloc[[40, 41, 42], 0] = "x"
    sensitive.iloc[[50, 51], 0] = "y"
    changed = dataclasses.replace(table, sensitive=sensitive)
    settings = {"groups": Groups(unknown="ignore", small="merge", min_size=4)}
    memory = _quick(**settings).fit(changed.X, sensitive_features=changed.sensitive)
    assert any(name.startswith("merged: ") for name in memory.group_names_)
    for cuts in (1, 6):
        _assert_same(_quick(**settings).fit_partitions(engine(changed, cuts)), memory)


def test_sampled_reference_depends_neither_on_partitions_nor_on_order(tables, engine):
    table = tables(2000)
    settings = {"reference_size": 300}
    first = _model(**settings).fit_partitions(engine(table, 2))
    shuffled = table.taken(np.random.default_rng(1).permutation(2000))
    _assert_same(_model(**settings).fit_partitions(engine(table, 9)), first)
    _assert_same(_model(**settings).fit_partitions(engine(shuffled, 5)), first)
    assert 240 < len(first.target_) < 360
    assert first.n_rows_ == 2000
    scores = first.outlier_scores(table.X)
    assert np.abs(first.outlier_scores_[:, None] - scores).min(axis=1).max() < 1e-9  # rows that are among all


def test_rank_weights_from_the_sketch_are_within_the_stated_error(tables, engine, monkeypatch):
    table = tables(4000)
    monkeypatch.setattr("evenout.fitting.rows.CAPACITY", 256)
    exact = _quick(reference_size=400).fit_partitions(engine(table, 5))
    for cuts in (2, 23):
        model = _quick(reference_size=400).fit_partitions(engine(table, cuts), exact_rows=100)
        assert 0 < model.rank_error_ < 0.02
        got, right = model.path_.cross.whole.weighted, exact.path_.cross.whole.weighted
        # Every entry is a sum of terms beta_i z_i z_i' >= 0, and beta = exp(rank / n).
        assert (np.abs(got - right) <= np.expm1(model.rank_error_) * right + 1e-9).all()
        np.testing.assert_allclose(model.path_.cross.whole.plain, exact.path_.cross.whole.plain, rtol=1e-10)
        y = model.outlier_scores(table.X)
        assert abs((y > -model.offset_).mean() - 0.1) <= 0.02


def test_folds_beyond_the_reference_do_not_depend_on_partitions(tables, engine):
    table = tables(3000)
    fits = [_quick(reference_size=300).fit_partitions(engine(table, cuts), exact_rows=100) for cuts in (2, 11)]
    first, second = (fit.path_.cross.held.plain for fit in fits)
    np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)
    assert (np.abs(first[:, :-1, 0, 0] / fits[0].group_counts_ - 0.2) < 0.15).all()
    cross = fits[0].path_.cross
    np.testing.assert_allclose(cross.training.counts + cross.held.counts, 3000)


def test_lost_scratch_files_are_scored_again(table, engine):
    class Forgetful(type(engine(table, 4))):
        @contextmanager
        def scratch(self):
            yield partial(Path, "no/such/folder")

    local = engine(table, 4)
    lossy = Forgetful(local.parts, local.header)
    _assert_same(_quick().fit_partitions(lossy), _quick().fit_partitions(local), rtol=1e-14)


def test_individual_fairness_on_a_sample_is_right_within_its_error(tables, engine):
    table = tables(2500)
    settings = {"fairness": Individual(length_scale=("median", 0.5))}
    memory = _quick(**settings).fit(table.X, sensitive_features=table.sensitive)
    model = _quick(**settings, reference_size=1000).fit_partitions(engine(table, 4))
    error = model.path_.target_standard_error()
    assert 0 < error < 0.5 * memory.path_.target_bias()
    assert abs(model.path_.target_bias() - memory.path_.target_bias()) < 4 * error
    np.testing.assert_allclose(model.path_.f2(0.0), memory.path_.f2(0.0), rtol=0.3)


@pytest.mark.long
def test_sampled_pairs_of_the_reference_state_their_error(tables, engine):
    table = tables(20_000)
    exact, sampled = (
        _quick(fairness=Individual("minmax", pairs), reference_size=16_000).fit_partitions(engine(table, 4))
        for pairs in ("exact", "sampled")
    )
    assert exact.pair_error_ == 0
    assert 0 < sampled.pair_error_ < 0.05
    f2 = exact.path_.f2(0.0)
    assert 0 < abs(sampled.path_.f2(0.0) - f2) < 4 * sampled.pair_error_ * f2


def test_a_refit_in_memory_forgets_the_partitions(table, engine):
    model = _quick().fit_partitions(engine(table, 3))
    assert model.rank_error_ == 0
    model.fit(table.X, sensitive_features=table.sensitive)
    fresh = _quick().fit(table.X, sensitive_features=table.sensitive)
    assert set(vars(model)) == set(vars(fresh))


def test_written_scores_are_those_of_the_quick(table, engine, tmp_path):
    model = _quick().fit_partitions(engine(table, [100, 100, 300]), scores_to=tmp_path)
    written = pd.concat([pd.read_parquet(file) for file in sorted(tmp_path.iterdir())], ignore_index=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"scores-{i:06d}.parquet" for i in range(4)]
    np.testing.assert_allclose(written["fair_score"], model.outlier_scores(table.X), rtol=1e-12)
    np.testing.assert_allclose(written["base_score"], model.base_scores(table.X), rtol=1e-12)
    np.testing.assert_array_equal(written["flagged"], model.predict(table.X) == -1)
    labels = "sex=" + table.sensitive["sex"] + ", old=" + table.sensitive["old"].astype(str)
    assert written["group"].tolist() == labels.tolist()
    assert written["row"].tolist() == [*range(100), *range(200), *range(150)]

    again = tmp_path / "again"
    again.mkdir()
    counts = model.score_partitions(engine(table, 3), again)
    assert counts[:-1, 0].tolist() == model.group_counts_.tolist()
    assert counts[:, 1].sum() == written["flagged"].sum()


def test_constant_detectors_take_no_part(table, engine):
    with pytest.warns(ConstantScoreWarning, match="_nothing"):
        model = _model(alpha=1.0, detectors=[_radius, _first, _nothing]).fit_partitions(engine(table, 3))
    assert model.weights_[2] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"scaling": "rank"},
            "scaling='rank' needs all rows in memory; over partitions use scaling='minmax'",
        ),
        ({"reference_size": 1}, "reference_size=1 is not allowed"),
        ({"groups": Groups(min_size=1000, small="error")}, "fewer than 1000 rows"),
    ],
)
def test_what_partitions_cannot_give_is_refused(settings, message, table, engine):
    with pytest.raises(ValueError, match=message):
        _model(**settings).fit_partitions(engine(table, 3))


def test_bad_rows_name_their_partition_and_leave_the_model_alone(table, engine):
    model = _quick().fit_partitions(engine(table, 3))
    before = dict(vars(model))
    unnamed = table.sensitive.astype(object).copy()
    unnamed.iloc[200, 0] = None
    with pytest.raises(ValueError, match=r"^part-1: sensitive_features has missing values in 1 of 150 rows .*row 50"):
        model.fit_partitions(engine(dataclasses.replace(table, sensitive=unnamed), 3))
    holes = table.X.copy()
    holes.iloc[449, 1] = np.nan
    with pytest.raises(ValueError, match=r"^part-2: Input X contains NaN"):
        model.fit_partitions(engine(dataclasses.replace(table, X=holes), 3))
    huge = table.X.copy()
    huge.iloc[0, 2] = 1e40
    with pytest.raises(ValueError, match=r"^part-0: X has 1e\+40 in row 0, column 2"):
        model.fit_partitions(engine(dataclasses.replace(table, X=huge), 3))
    assert vars(model) == before


def test_groups_of_equal_rows_are_refused_at_scale(engine, tables):
    table = tables(600)
    X = table.X.copy()
    X[(table.sensitive["sex"] == "m").to_numpy()] = 1.0
    same = dataclasses.replace(table, X=X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _quick().fit_partitions(engine(same, 2))
        with pytest.raises(ValueError, match=r"rows of group 'sex=m, old=.' are all alike"):
            _quick(reference_size=100).fit_partitions(engine(same, 2))
