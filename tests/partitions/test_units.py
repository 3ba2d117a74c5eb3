"""Units over partitions are those of all rows, and no unit of a table changes a score."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from evenout import FairOutlierEnsemble, Groups
from evenout.datasets import load_dataset
from evenout.detectors.units import Measures, Units
from evenout.exceptions import ConstantFeatureWarning
from evenout.out_of_core.survey import survey_rows

pytestmark = pytest.mark.filterwarnings(
    "ignore::evenout.exceptions.TargetNotReachedWarning",
    "ignore::evenout.exceptions.NoGapWarning",
    "ignore::evenout.exceptions.SmallGroupWarning",
)


def _units(model):
    return model._result.scores.pool.units


def _wide(table):
    """The table with a category, amounts that are mostly zero, and wild numbers."""
    rng, n = np.random.default_rng(4), len(table.X)
    kind = np.eye(3)[rng.integers(3, size=n)]
    more = {f"kind_{j}": kind[:, j] for j in range(3)}
    amount = np.where(rng.random(n) < 0.7, 0.0, rng.pareto(1.0, n) * 1e4)
    return dataclasses.replace(table, X=table.X.assign(**more, amount=amount, wild=rng.standard_cauchy(n)))


def _other_units(X, seed):
    """Numbers in other units, from zeros that are up to some hundred spreads away; categories stay as they are."""
    rng, units, changed = np.random.default_rng(seed), Units.fit(X.to_numpy()), X.copy()
    for j, spread in zip(units.kept, units.spread, strict=True):
        if not X.columns[j].startswith("kind_"):
            factor = 10.0 ** rng.uniform(-6, 6)
            changed.iloc[:, j] = (X.iloc[:, j] + 100.0 * rng.normal() * spread) * factor
    return changed


def _equal(one, two, X, Z):
    """Everything of a fit but what is stated in the features' own units."""
    assert one.alpha_ == two.alpha_
    for name in ("target_", "outlier_scores_", "weights_", "flag_rates_", "group_counts_"):
        assert_array_equal(getattr(one, name), getattr(two, name))
    assert_array_equal(one.outlier_scores(X), two.outlier_scores(Z))


def test_units_are_those_of_all_rows_not_of_the_reference(tables, engine):
    table = _wide(tables(1000))
    right = Units.fit(table.X.to_numpy())
    assert not np.array_equal(right.centre, Units.fit(table.X.to_numpy()[:300]).centre)
    for rows, cuts in ((np.arange(1000), 1), (np.random.default_rng(0).permutation(1000), 7)):
        model = FairOutlierEnsemble(random_state=0, alpha=1.0, reference_size=300)
        found = _units(model.fit_partitions(engine(table.taken(rows), cuts)))
        assert len(model.target_) < 400
        for name in ("kept", "centre", "spread"):
            assert_array_equal(getattr(found, name), getattr(right, name))


@pytest.mark.parametrize(("detectors", "exact_rows"), [("paper", 10**6), ("default", 100)])
def test_units_of_a_table_change_no_score_over_partitions(detectors, exact_rows, tables, engine, monkeypatch):
    """Beyond exact_rows too: the sketches are small here, and follow every change of units."""
    monkeypatch.setattr("evenout.out_of_core.survey.CAPACITY", 16)
    table = _wide(tables(1000))
    changed = dataclasses.replace(table, X=_other_units(table.X, 3))
    models = [
        FairOutlierEnsemble(detectors, random_state=0, bias_reduction=0.5, reference_size=300).fit_partitions(
            engine(one, 5), exact_rows=exact_rows
        )
        for one in (table, changed)
    ]
    _equal(*models, table.X, changed.X)
    inexact = not np.array_equal(_units(models[0]).centre, Units.fit(table.X.to_numpy()).centre)
    assert inexact == (exact_rows == 100)


@pytest.mark.parametrize("name", ["breastw", "credit"])
def test_units_of_real_tables_change_no_score_over_partitions(name, engine, table):
    data = load_dataset(name)
    rows = np.random.default_rng(0).permutation(len(data.X))[:1000]
    X, sensitive = data.X.iloc[rows].reset_index(drop=True), pd.DataFrame(data.sensitive).iloc[rows]
    one = dataclasses.replace(table, X=X, sensitive=sensitive.reset_index(drop=True))
    two = dataclasses.replace(one, X=_other_units(X, 1))
    models = [
        FairOutlierEnsemble(random_state=0, reference_size=400).fit_partitions(engine(each, 4)) for each in (one, two)
    ]
    assert len(models[0].target_) < len(X)
    _equal(*models, one.X, two.X)


def test_beyond_exact_rows_quartiles_are_within_the_stated_error(tables, engine, monkeypatch):
    monkeypatch.setattr("evenout.out_of_core.survey.CAPACITY", 32)
    table, stated = _wide(tables(3000)), []
    settled = Measures.units

    def noted(self):
        parts = [quartile.between for column in self.quartiles for quartile in column]
        stated.append(max(part.rank_error * part.count for part in parts) / len(table.X))
        return settled(self)

    monkeypatch.setattr(Measures, "units", noted)
    model = FairOutlierEnsemble("paper", random_state=0, alpha=1.0, reference_size=300)
    units, X = _units(model.fit_partitions(engine(table, 9), exact_rows=100)), table.X.to_numpy()
    error = stated[0]
    assert 0 < error < 0.02
    numbers = [X.shape[1] - 1, 0, 1, 2, 3]  # columns without ties at the median
    places = [units.kept.tolist().index(j) for j in numbers]
    ranks = [(X[:, j] < units.centre[place]).mean() for j, place in zip(numbers, places, strict=True)]
    assert np.abs(np.array(ranks) - 0.5).max() <= error + 1 / len(X)


@pytest.mark.filterwarnings(
    "ignore::evenout.exceptions.GroupGivenAwayWarning"
)  # each group has its own copy of that row
def test_rows_that_units_cannot_tell_apart_are_drawn_in_proportion(tables, engine):
    """Three in ten rows differ by less than a unit's grid: as content they are one row, which must not come whole."""
    table = tables(5000)
    X = table.X.copy()
    X.iloc[1000:2500] = 1e-9 * np.random.default_rng(0).normal(size=(1500, 4))
    model = FairOutlierEnsemble("paper", random_state=0, alpha=1.0, reference_size=500)
    model.fit_partitions(engine(dataclasses.replace(table, X=X), 4))
    same = model.target_ == np.median(model.base_scores(X.iloc[1000:2500]))
    assert abs(same.mean() - 0.3) < 0.06
    assert abs(len(model.target_) - 500) < 120


def test_constant_columns_are_dropped_and_named_once(tables, engine):
    table = tables(800)
    constant = dataclasses.replace(table, X=table.X.assign(always=3.0))
    plain = FairOutlierEnsemble("paper", random_state=0, alpha=1.0, reference_size=300)
    plain.fit_partitions(engine(table, 3))
    with pytest.warns(ConstantFeatureWarning, match="dropped: always$") as caught:
        model = FairOutlierEnsemble("paper", random_state=0, alpha=1.0, reference_size=300).fit_partitions(
            engine(constant, 3)
        )
    assert len(caught) == 1
    assert_array_equal(model.target_, plain.target_)


def test_without_units_no_pass_is_made_for_them(tables, engine, monkeypatch):
    table = tables(600)
    survey = survey_rows(engine(table, 3), rules=Groups(), reference_size=100, seed=0)
    assert survey.ranges is None
    monkeypatch.setattr("evenout.fitting.rows.learn_units", None)
    for settings in ({"standardize": False, "reference_size": 100}, {"reference_size": 600}):
        FairOutlierEnsemble("paper", random_state=0, alpha=1.0, **settings).fit_partitions(engine(table, 3))
