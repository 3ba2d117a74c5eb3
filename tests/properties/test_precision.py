"""Threads change no result, and where float32 is used its error is known."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.ensemble import IsolationForest
from tests.conftest import distance_range
from threadpoolctl import threadpool_limits

from evenout import audit
from evenout.core._pair_kernels import negative_power
from evenout.core.pairwise import pair_sums, sampled_pair_sums
from evenout.detectors.forest import Forest

BOTH = {"demographic_parity": 1.0, "individual": 1.0}


@pytest.fixture(scope="module")
def people(make_table):
    return make_table(1200, 5, n_groups=3)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(
    "asked",
    [{}, {"fairness": BOTH, "alpha": 2.0}, {"correction": "simplex", "scaling": "zscore", "combination": "moa"}],
)
def test_jobs_and_blas_threads_do_not_change_the_fit(asked, people, fit):
    found, new = [], people.values[:50] + 0.1
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            model = fit(people, "diverse", n_jobs=threads, **asked)
            found.append({**vars(model), "new": model.outlier_scores(new)})
    for name in ("alpha_", "weights_", "target_", "outlier_scores_", "bias_reduction_", "offset_", "new"):
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-8, atol=1e-8, err_msg=name)


def test_blas_threads_do_not_change_an_audit(people):
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            settings = {"X": people.values, "resamples": 50}
            found.append(audit(people.values[:, 0], sensitive_features=people.names, **settings).to_frame())
    columns = ["value", "low", "high", "p", "p_adjusted"]
    np.testing.assert_allclose(found[1][columns], found[0][columns], rtol=1e-8, atol=1e-12)


def test_threads_do_not_change_sampled_pair_sums_at_all(make_table):
    table = make_table(20_000, 2)
    one, two = (
        sampled_pair_sums(
            table.values,
            table.values,
            table.groups,
            np.zeros_like(table.groups),
            n_groups=2,
            n_folds=1,
            tolerance=0.1,
            n_threads=threads,
        )
        for threads in (1, 2)
    )
    assert 0 < one[1] == two[1]
    np.testing.assert_array_equal(two[0].form, one[0].form)


def similarities(X, groups, scale):
    """``exp(-delta_ij)`` of all pairs of rows, in float64."""
    distance = cdist(X, X)
    if scale != "minmax":
        return np.exp(-distance / scale)
    across = distance[groups[:, None] != groups]
    return np.exp(-(distance - across.min()) / np.ptp(across))


@given(data=st.data())
def test_pair_sums_in_float32_are_right_in_every_direction(data, tame_tables):
    """``|v'(F~ - F)v| <= 1e-5 v'(F + m Cov)v`` for every mix v of the scores, also where two of them nearly cancel.

    With m the sum of the similarities, ``2 m v' Cov v`` is what scores that have nothing to do with the features would
    have: so the error is small even if rows that are alike have nearly the same score. By "minmax" nearly all pairs
    count, and it is small against ``v'Fv`` alone.
    """
    table = data.draw(tame_tables())
    X, groups, G = table.values, table.groups, table.groups.max() + 1
    Z = np.column_stack([X, X[:, 0] + 1e-3 * X[:, -1] ** 2])
    scale, unit = (
        data.draw(st.sampled_from(["minmax", 0.3, 1.0, 1e4])),
        data.draw(st.sampled_from([1e-200, 1.0, 1e20])),
    )
    length = scale if scale == "minmax" else unit * scale
    found = pair_sums(unit * X, Z, groups, np.zeros_like(groups), n_groups=G, n_folds=1, scale=length)
    similar = similarities(X, groups, scale)
    for place, (p, q) in enumerate(combinations(range(G), 2)):
        M, gaps = similar[np.ix_(groups == p, groups == q)], Z[groups == p][:, None] - Z[groups == q]
        F = np.einsum("ij,ija,ijb->ab", M, gaps, gaps)
        assert found.mass[place, 0, 0] == pytest.approx(M.sum(), rel=1e-5)
        yardstick = F if scale == "minmax" else F + M.sum() * np.cov(Z.T)
        assert np.abs(eigh(found.form[place, 0, 0] - F, yardstick, eigvals_only=True)).max() < 1e-5


@given(data=st.data())
def test_distance_range_found_in_float32_is_right_in_float64(data, wild_tables):
    table = data.draw(wild_tables(least=1e-100))
    across = cdist(table.values, table.values)[table.groups[:, None] != table.groups]
    found = distance_range(table.values, table.groups, table.groups.max() + 1)
    np.testing.assert_allclose(found, [across.min(), across.max()], rtol=1e-9, atol=2e-6 * across.max())


@given(t=st.floats(0.0, 126.9))
def test_powers_in_float32_are_right_to_its_precision(t):
    exponent = np.float32(t)
    assert float(negative_power(exponent)) == pytest.approx(2.0 ** -float(exponent), rel=3e-7)


@given(data=st.data())
def test_forests_that_compare_in_float32_are_those_of_scikit_learn(data, wild_tables):
    X = data.draw(wild_tables()).values
    new = data.draw(wild_tables(max_width=1)).values.repeat(X.shape[1], axis=1)
    # scikit-learn 1.6 and 1.7 split values closer than 1e-7; they are compared with what was grown by themselves.
    close = IsolationForest(n_estimators=1).fit([[0.0], [5e-8]]).estimators_[0].tree_.node_count > 1
    forest, scores = Forest.fit(X, sizes=[2, 5], random_state=3, scikit_learn=close)
    for j, size in enumerate((2, 5)):
        theirs = IsolationForest(n_estimators=size, random_state=3).fit(X)
        np.testing.assert_array_equal(scores[:, j], -theirs.score_samples(X))
        np.testing.assert_array_equal(forest.score(new)[:, j], -theirs.score_samples(new))
