"""Many columns for the rows there are: what is stated of unseen rows, held against a population that is known."""

import numpy as np
import pytest

from evenout import FairOutlierEnsemble, Groups
from evenout.core.cells import CrossFit, collect_cells, fold_variances, variances
from evenout.exceptions import ManyColumnsWarning

QUIET = ("ignore::evenout.exceptions.ManyColumnsWarning", "ignore::evenout.exceptions.TargetNotReachedWarning")


def cross(n, k, *, weight=None, clusters=None, seed=0):
    """Sums of a table whose rows score anew by every fold's model."""
    rng = np.random.default_rng(seed)
    S, groups, folds = rng.normal(size=(n, k)), np.arange(n) % 2, np.arange(n) // 2 % 5

    def sums(of, by):
        Z = S * by
        one = np.where(of, 0, -1)
        counted = {"sample_weight": weight, "clusters": clusters}
        return collect_cells(Z, Z.mean(axis=1), np.ones(n), groups, one, n_groups=2, n_sets=1, **counted)

    every = np.ones(n, dtype=bool)
    parts = [(sums(folds != f, 1.0 + f), sums(folds == f, 1.0 + f)) for f in range(5)]
    training, held = (type(parts[0][0]).stacked(side) for side in zip(*parts, strict=True))
    return CrossFit(sums(every, 1.0), training, held), S, folds


def test_five_rows_a_column_outside_of_a_fold_are_enough():
    assert not cross(50, 8)[0].crowded
    assert cross(50, 9)[0].crowded


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_weights_and_clusters_count_as_the_rows_they_are_worth(unit):
    equal, _, _ = cross(50, 8, weight=np.full(50, unit))
    assert equal.rows_outside == pytest.approx(40)
    people, _, _ = cross(50, 8, weight=np.full(50, unit), clusters=np.arange(50) // 10)
    assert people.rows_outside < 20
    assert people.crowded


def test_the_spread_is_that_of_held_out_rows_where_columns_are_many():
    sums, S, folds = cross(50, 30)
    V = np.zeros((5, 1, 31))
    V[:, 0, 3] = 1.0
    both = np.array([((1.0 + f) * S[:, 3]).var() for f in range(5)])
    held = np.array([((1.0 + f) * S[folds == f, 3]).var() for f in range(5)])
    np.testing.assert_allclose(fold_variances(sums, V)[:, 0], both * (held / both).mean())
    few, S, folds = cross(50, 5)
    np.testing.assert_allclose(fold_variances(few, V[:, :, :6])[:, 0], [((1.0 + f) * S[:, 3]).var() for f in range(5)])
    assert (variances(few.held, V[:, :, :6]) > 0).all()


def draw(n, d, n_groups, rng, scale):
    group = np.arange(n) % n_groups
    return rng.normal(size=(n, d)) * (1.0 + scale * group[:, None] / (n_groups - 1)), group


def ready(n, k, n_groups, rng, gap):
    group = np.arange(n) % n_groups
    mean = gap * np.random.default_rng(3).uniform(0.3, 1.0, size=k)
    return rng.normal(size=(n, 1)) + rng.normal(size=(n, k)) + mean * group[:, None] / (n_groups - 1), group


def bias(y, group):
    means = np.array([y[group == g].mean() for g in np.unique(group)])
    return 2.0 * means.var(ddof=1) / y.var()


def stated(make, n, k, n_groups, size, seed, detectors):
    """What a fit states, whether it calls that met, and the truth; None where it finds no gap."""
    rng = np.random.default_rng(seed)
    X, group = make(n, k, n_groups, rng, size)
    new, of = make(3000, k, n_groups, rng, size)
    model = FairOutlierEnsemble(detectors, random_state=seed, groups=Groups(min_size=2)).fit(
        X, sensitive_features=group
    )
    if not model.gap_detected_:
        return None
    true = 1.0 - bias(model.outlier_scores(new), of) / bias(model.base_scores(new), of)
    return *model.bias_reduction_interval_, model.request_met_, true


def judged(*population, repeats, detectors):
    found = [stated(*population, seed, detectors) for seed in range(repeats)]
    found = [one for one in found if one is not None]
    held = [low - 1e-9 <= true <= high + 1e-9 for low, high, _, true in found]
    short = [max(0.8 - true, 0.0) for *_, met, true in found if met]
    return np.mean(held), np.mean(short or [0.0])


def test_more_detectors_than_rows_are_said():
    X, group = ready(60, 80, 2, np.random.default_rng(0), 1.0)
    with pytest.warns(ManyColumnsWarning, match="there are 80 detectors, but 48 independent rows"):
        FairOutlierEnsemble("precomputed", alpha=1.0).fit(X, sensitive_features=group)
    FairOutlierEnsemble("precomputed", alpha=1.0).fit(X[:, :40], sensitive_features=group)


@pytest.mark.filterwarnings(*QUIET)
def test_what_is_stated_holds_with_more_features_than_rows():
    """It said .79 where .26 to .36 was true, in each of these."""
    held, short = judged(draw, 100, 110, 2, 1.0, repeats=6, detectors="default")
    assert held >= 5 / 6
    assert short <= 0.1


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.filterwarnings(*QUIET, "ignore::evenout.exceptions.NoGapWarning")
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize(
    ("n", "k"), [(100, 50), (100, 100), (100, 250), (100, 400), (200, 100), (400, 100), (400, 400)]
)
@pytest.mark.parametrize(("make", "size"), [(draw, 0.3), (draw, 1.0), (ready, 1.0), (ready, 2.0)])
def test_intervals_hold_and_what_is_met_is_there(make, size, n, k, n_groups):
    detectors = "precomputed" if make is ready else "default"
    held, short = judged(make, n, k, n_groups, size, repeats=40, detectors=detectors)
    assert held >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / 40)
    assert short <= 0.05
