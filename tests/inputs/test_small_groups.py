"""Groups with too few rows are left out and named; where fewer than two are left, nothing is changed or claimed."""

import numpy as np
import pytest

from evenout import FairOutlierEnsemble, Groups
from evenout.exceptions import SmallGroupWarning


def make_rows(n=5000, seed=0):
    """Scores of three detectors, and two groups a clear distance apart."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b"], n)
    return rng.gamma(2.0, size=(n, 3)) + 0.5 * (groups == "b")[:, None] * [1.0, 0.6, 0.2], groups


def fit(X, sensitive_features, **settings):
    return FairOutlierEnsemble("precomputed", random_state=0, **settings).fit(X, sensitive_features=sensitive_features)


def with_third(groups):
    """Two rows, one of each group, as a third one."""
    changed = groups.astype(object)
    changed[[np.flatnonzero(groups == "a")[0], np.flatnonzero(groups == "b")[0]]] = "c"
    return changed


def test_two_rows_of_a_third_group_cannot_ruin_a_fit():
    X, groups = make_rows()
    before, after = (
        fit(X, given, groups=Groups(min_size=2, small="error"), alpha=50.0).path_
        for given in (groups, with_third(groups))
    )
    assert after.cross.n_folds == before.cross.n_folds == 5
    errors = [path.target_standard_error() for path in (before, after)]
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    assert before.gap_p_value < 1e-20
    assert np.log10(after.gap_p_value) == pytest.approx(np.log10(before.gap_p_value), rel=0.1)


def test_by_default_a_small_group_is_left_out_and_named():
    X, groups = make_rows()
    with pytest.warns(SmallGroupWarning, match=r"fewer than 30 rows .*: 'c' \(2\)") as caught:
        model = fit(X, with_third(groups), alpha=50.0)
    assert [warning.filename for warning in caught] == [__file__]
    assert model.left_out_groups_ == {"c": 2}
    assert model.group_names_ == ("a", "b")
    assert model.group_counts_.sum() == 4998
    assert len(model.outlier_scores_) == 5000
    assert model.path_.cross.whole.counts[0] == 5000  # they count for the target


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 7.0},
        {"flag_rate_ratio": 0.9},
        {"fairness": "individual"},
        {"fairness": {"individual": 1, "demographic_parity": 1}},
        {"fairness": lambda S, codes: np.diag([np.ptp(S[codes == g]) for g in range(3)]), "alpha": 1.0},
    ],
    ids=["default", "alpha", "flags", "individual", "both", "own"],
)
def test_with_fewer_than_two_groups_the_scores_are_the_base_scores_and_nothing_is_claimed(settings):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 3)), ["a"] * 50 + ["b"] * 10
    model = FairOutlierEnsemble(random_state=0, **settings)
    with pytest.warns(SmallGroupWarning, match="fewer than two groups are left to compare") as caught:
        model.fit(X, sensitive_features=groups)
    assert len(caught) == 1
    np.testing.assert_array_equal(model.outlier_scores_, model.target_)
    np.testing.assert_array_equal(model.outlier_scores(X + 1.0), model.base_scores(X + 1.0))
    assert (model.alpha_, model.gap_detected_, model.request_met_) == (0.0, False, False)
    path = model.path_
    claims = [model.bias_reduction_, *model.bias_reduction_interval_, path.target_bias(), path.bias(3.0)]
    claims += [path.target_standard_error(), path.standard_error(3.0), path.gap_p_value]
    claims += [*path.target_interval(), *path.interval(3.0), path.bias(3.0, "training")]
    assert np.isnan(claims).all()
    assert path.table().filter(like="unseen").isna().all().all()


def test_the_base_score_itself_is_stated_by_one_interval():
    path = fit(*make_rows(n=400), alpha=50.0).path_
    assert path.reduction_interval(0.0) == (0.0, 0.0)  # nothing is removed, and that is certain
    assert path.interval(0.0) == path.target_interval()
    assert path.bias(0.0) == pytest.approx(path.target_bias(), rel=1e-12)
    low, high = path.reduction_interval(50.0)
    assert low < path.reduction(50.0) < high
